"""The fitness, for every kernel: hardest part first, exact early abort, sums in one canonical order.

Kernels differ in how the loss of a part is computed for several networks (`Networks`); never in what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isfinite
from typing import Protocol

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from esgd.engines.contract import Parts, Score
from esgd.errors import FitnessError, TaskError
from esgd.genome import Buffers
from esgd.protocols import Batch, Task, Weighted

CUTOFF_SLACK = 1e-9
"""Relative slack of the cut-off of early abort. Sums in float64, taken in two orders, differ by far less, so no elite
is ever aborted."""

REFUSALS = (ArithmeticError, RuntimeError, ValueError)
"""What a network or loss raises that refuses NaN. If a parameter has overflowed, that is divergence, not a defect."""


class Networks(Protocol):
    """n networks on a device, of which some rows can be scored."""

    def __len__(self) -> int: ...

    def calibrate(self, rows: Sequence[int]) -> int:
        """Re-estimate BatchNorm statistics and switch to eval mode; returns the samples used for each row."""
        ...

    def losses(self, rows: Sequence[int], batch: Batch) -> Sequence[float]:
        """The fitness of each row, summed over one part."""
        ...

    def check_layout(self) -> None:
        """Refuse networks that forward has given other parameters or buffers."""
        ...

    def overflowed(self) -> list[int]:
        """The rows that have a parameter which is NaN or so large that its square overflows."""
        ...

    def buffers(self, row: int) -> Buffers:
        """The buffers of a row (copies, on the CPU)."""
        ...


class Scorer:
    """Takes the fitness of networks: eval mode, fixed parts, float64 sums.

    Parts are visited hardest first. Sums of losses that are never negative only grow, so once they exceed the cut-off
    the individual cannot be an elite and its other parts are not evaluated: exactly, not probably.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._divisor: Callable[[Batch], float] = task.divisor if isinstance(task, Weighted) else task.size
        self._divisors = dict[int, float]()  # of the parts seen so far: for weighted targets it has to be computed
        self._samples: int | None = None  # of the whole fitness, once it has been seen …
        self._weight = 0.0  # … and what they count as in the mean
        self._hardest: Sequence[int] | None = None  # parts by falling loss of the last complete evaluation

    def forget_order(self) -> None:
        """Visit the parts in natural order again, so that the ledger does not depend on what was done before."""
        self._hardest = None

    def score(self, networks: Networks, cutoff: float = inf, begun: Sequence[Parts] = ()) -> list[Score]:
        """The fitness of each network, continued from `begun`; those that refuse NaN have diverged."""
        rows, begun = list(range(len(networks))), begun or [{}] * len(networks)
        try:
            return self._score(networks, rows, cutoff, begun)
        except REFUSALS:
            networks.check_layout()
            diverged = networks.overflowed()
            if not diverged:
                raise
        found = {row: Score(inf, True, 0, 0, {}, networks.buffers(row)) for row in diverged}
        if sound := [row for row in rows if row not in found]:
            found |= zip(sound, self._score(networks, sound, cutoff, [begun[row] for row in sound]), strict=True)
        return [found[row] for row in rows]

    @torch.no_grad()
    def _score(self, networks: Networks, rows: Sequence[int], cutoff: float, begun: Sequence[Parts]) -> list[Score]:
        task, calibrated, total = self.task, networks.calibrate(rows), self._samples
        may_stop = task.nonnegative and total is not None and cutoff < inf
        parts = {row: dict(known) for row, known in zip(rows, begun, strict=True)}
        sums = {row: sum(loss for loss, _, _ in known.values()) for row, known in parts.items()}
        before = {row: samples_in(known) for row, known in parts.items()}
        seen, active = dict(before), list(rows)
        for part, batch in task.parts(self._hardest if may_stop else None):
            if part not in self._divisors:
                self._divisors[part] = self._divisor(batch)
            size, counts, new = task.size(batch), self._divisors[part], [r for r in active if part not in parts[r]]
            for row, loss in zip(new, networks.losses(new, batch) if new else (), strict=True):
                _check_sign(task, part, loss)
                parts[row][part], sums[row], seen[row] = (loss, size, counts), sums[row] + loss, seen[row] + size
            if total is not None:
                limit = cutoff * (1 + CUTOFF_SLACK) if may_stop else inf
                means = {row: sums[row] / self._weight for row in active}
                active = [row for row in active if seen[row] >= total or _may_still_qualify(means[row], limit)]
            if not active:
                break
        if not any(seen.values()):
            raise TaskError("the fitness data have no samples. Give fitness= at least one, anew each time it is asked.")
        if total is None:
            networks.check_layout()
        if active:
            self._samples, self._weight = seen[active[0]], _counted(parts[active[0]])
        if known := [parts[row] for row in active if isfinite(sums[row])]:
            self._hardest = sorted(known[0], key=lambda part: (-sum(each[part][0] for each in known), part))
        return [
            _result(parts[row], seen[row] - before[row] + calibrated, (self._samples or 0) - seen[row], networks, row)
            for row in rows
        ]


def _may_still_qualify(mean: float, limit: float) -> bool:
    """Whether more parts can still matter: the individual has neither diverged nor exceeded the limit."""
    return isfinite(mean) and mean <= limit


def _result(parts: Parts, samples: int, saved: int, networks: Networks, row: int) -> Score:
    complete = not saved or not all(isfinite(loss) for loss, _, _ in parts.values())
    fitness = sum(parts[part][0] for part in sorted(parts)) / _counted(parts) if complete else inf
    return Score(fitness if isfinite(fitness) else inf, complete, samples, saved, parts, networks.buffers(row))


def samples_in(parts: Parts) -> int:
    """How many samples those parts have."""
    return sum(samples for _, samples, _ in parts.values())


def _counted(parts: Parts) -> float:
    """What the samples of those parts count as in the mean."""
    counted = sum(parts[part][2] for part in sorted(parts))
    if not counted > 0:
        raise TaskError(
            "no target of the fitness data counts: all have a weight of 0, or are ignored (ignore_index). Give "
            "fitness= at least one that does."
        )
    return counted


def reestimate(
    layers: Sequence[_BatchNorm],
    batches: Iterable[Batch],
    forward: Callable[[Batch], object],
    momentum: Callable[[int], float | None],
) -> None:
    """Run batches through a network so that these layers, which were reset, keep the mean of their statistics.

    Only these layers are in training mode, so that dropout stays off. `momentum` is that of the n-th batch.
    """
    momenta = [layer.momentum for layer in layers]
    try:
        for number, batch in enumerate(batches, start=1):
            for layer in layers:
                layer.train()
                layer.momentum = momentum(number)
            forward(batch)
    finally:
        for layer, before in zip(layers, momenta, strict=True):
            layer.momentum = before
            layer.eval()


def statistics_layers(module: nn.Module) -> list[_BatchNorm]:
    """BatchNorm layers that keep statistics and that the network really puts into training mode."""
    module.train()
    layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return [layer for layer in layers if layer.training and layer.running_mean is not None]


def _check_sign(task: Task, part: int, loss: float) -> None:
    """Refuse a negative sum where the task promises that there is none."""
    if task.nonnegative and loss < 0:
        raise FitnessError(
            f"the loss of fitness part {part} is {loss:.4g}, below 0, though the task says that it never is. "
            f"Early abort would be wrong. Build the task with nonnegative=False."
        )
