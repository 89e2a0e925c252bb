"""The seat: one network on one device, into which individuals are put to be trained and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from esgd.engines.computing import Computing
from esgd.errors import FitnessError, TaskError
from esgd.genome import Buffers, Row, persistent_buffers
from esgd.protocols import Rules, Task

ROUNDING = 1e-9
"""Relative slack of the cut-off: float64 sums taken in two orders differ by far less, so no elite is ever cut."""


Begun = Mapping[int, tuple[float, int]]
"""Parts that have been looked at: number → summed loss and samples."""


@dataclass(frozen=True, eq=False)
class Born:
    """An individual that has been built."""

    row: Row
    buffers: Buffers


def samples_in(parts: Begun) -> int:
    """How many samples those parts have."""
    return sum(samples for _, samples in parts.values())


@dataclass(frozen=True, slots=True)
class Score:
    """A fitness, or the news that it exceeds the cut-off, with the parts seen until then.

    `samples` were looked at just now; `saved` were not, and are not needed. `buffers` hold the statistics that the
    fitness was taken with.
    """

    fitness: float
    complete: bool
    samples: int
    saved: int
    parts: Begun
    buffers: Buffers = field(default_factory=dict)


class Seat:
    """A network on a device, where one can sit: its parameters are those of the individual that was seated last.

    Seating copies a row into tensors that stay the same for the whole run. Views of the row would save the copy, once
    a generation, but most would begin at odd addresses, where convolutions are 3–4% slower at every step; and a
    compiled network would be compiled again.
    """

    def __init__(self, rules: Rules, computing: Computing) -> None:
        self.rules, self.computing = rules, computing
        genome = rules.genome
        self.module = genome.module(*genome.read(genome.template)).to(computing.device)
        named = dict(self.module.named_parameters())
        self.parameters = [named[name] for name in genome.names]
        self.sparse = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse for m in self.module.modules())
        if computing.compile:
            self.module.compile()
        self.normalised = _statistics_layers(self.module)
        self._samples: int | None = None  # of the whole fitness, once it has been seen
        self._hardest: Sequence[int] | None = None  # parts by falling loss of the last complete evaluation

    def forget_order(self) -> None:
        """Visit the parts in natural order again, so that the ledger does not depend on what was done before."""
        self._hardest = None

    @torch.no_grad()
    def put(self, row: Row, buffers: Buffers) -> None:
        """Copy an individual into the network."""
        for parameter, value in zip(self.parameters, self.rules.genome.views(row).values(), strict=True):
            parameter.copy_(value)
            parameter.grad = None
        for name, buffer in persistent_buffers(self.module).items():
            buffer.copy_(buffers[name])

    def row(self) -> Row:
        """The seated parameters (a copy, on the CPU)."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters]).cpu()

    def buffers(self) -> dict[str, Tensor]:
        """The seated individual's buffers (copies, on the CPU)."""
        return {name: b.detach().cpu().clone() for name, b in persistent_buffers(self.module).items()}

    @torch.no_grad()
    def calibrate(self) -> int:
        """Re-estimate BatchNorm statistics on the task's fixed batches; returns the samples used.

        The cumulative mean over the batches (momentum=None), only these layers in training mode, so that dropout stays
        off. Parents and offspring alike, before every fitness.
        """
        if not self.normalised or not self.rules.buffers.samples:
            return 0
        self.module.eval()
        momenta = [layer.momentum for layer in self.normalised]
        for layer in self.normalised:
            layer.reset_running_stats()
            layer.momentum = None
            layer.train()
        samples = 0
        try:
            for batch in self.rules.task.calibration(self.rules.buffers.samples):
                with self.computing.autocast():
                    self.rules.task.loss(self.module, self.computing.to_device(batch))
                samples += self.rules.task.size(batch)
        finally:
            for layer, momentum in zip(self.normalised, momenta, strict=True):
                layer.momentum = momentum
        return samples

    def score(self, cutoff: float = inf, begun: Begun | None = None) -> Score:
        """The fitness of the seated individual, going on from `begun`.

        A network or loss that refuses NaN is one way of diverging.
        """
        try:
            return self._score(cutoff, begun or {})
        except (ArithmeticError, RuntimeError, ValueError):
            if not self.exploded():
                raise
            return Score(inf, True, 0, 0, {}, self.buffers())

    @torch.no_grad()
    def _score(self, cutoff: float, begun: Begun) -> Score:
        """Eval mode, fixed parts, float64 sums in one canonical order.

        The parts are visited hardest first. Sums of losses that are never negative only grow, so once they exceed
        `cutoff` the individual cannot be elite and the rest of the parts is saved: exactly, not probably.
        """
        task, calibrated = self.rules.task, self.calibrate()
        self.module.eval()
        parts, total = dict(begun), self._samples
        partial, seen = sum(loss for loss, _ in parts.values()), samples_in(parts)
        before = seen
        may_stop = task.nonnegative and total is not None and cutoff < inf
        for part, batch in task.parts(self._hardest if may_stop else None):
            if part in begun:
                continue
            with self.computing.autocast():
                loss = float(task.fitness(self.module, self.computing.to_device(batch)))
            n = task.size(batch)
            parts[part], partial, seen = (loss, n), partial + loss, seen + n
            check_sign(task, part, loss)
            if total is not None and seen < total:
                if not isfinite(loss):
                    return Score(inf, True, seen - before + calibrated, total - seen, parts, self.buffers())
                if may_stop and partial / total > cutoff * (1 + ROUNDING):
                    return Score(inf, False, seen - before + calibrated, total - seen, parts, self.buffers())
        if seen == 0:
            raise TaskError("the fitness data have no samples. Give fitness= at least one, anew each time it is asked.")
        self._samples = seen
        self._hardest = sorted(parts, key=lambda part: (-parts[part][0], part))
        fitness = sum(parts[part][0] for part in sorted(parts)) / seen
        fitness = fitness if isfinite(fitness) else inf
        return Score(fitness, True, seen - before + calibrated, 0, parts, self.buffers())

    def exploded(self) -> bool:
        """Whether a seated parameter is NaN or so large that its square overflows: then an error of the network or the
        loss is divergence, not a defect."""
        limit = torch.finfo(self.rules.genome.dtype).max ** 0.5
        return not all(bool((parameter.detach().abs() < limit).all()) for parameter in self.parameters)


def check_sign(task: Task, part: int, loss: float) -> None:
    """Refuse a negative sum where the task promises that there is none."""
    if task.nonnegative and loss < 0:
        raise FitnessError(
            f"the loss of fitness part {part} is {loss:.4g}, below 0, though the task says that it never is. "
            f"Early abort would be wrong. Build the task with nonnegative=False."
        )


def _statistics_layers(module: nn.Module) -> list[_BatchNorm]:
    """BatchNorm layers that keep statistics and that the network really puts into training mode."""
    module.train()
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return [layer for layer in layers if layer.training and layer.running_mean is not None]
