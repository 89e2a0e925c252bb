"""One network on one device, into which individuals are loaded to be trained and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from esgd._tensors.batches import copied, tensors_in
from esgd.engines.attributes import AttributeSnapshot, ModuleModes
from esgd.engines.compiled_code import compile_module
from esgd.engines.computing import Computing
from esgd.engines.fitness import REFUSALS, reestimate, statistics_layers
from esgd.engines.onednn import multiply_by_onednn
from esgd.engines.output_layer import output_layer
from esgd.engines.scaled_scores import check_outputs, fitness_by_scale
from esgd.errors import TaskError
from esgd.genome import Buffers, Genome, Row, layout, persistent_buffers
from esgd.protocols import Batch, ScoresOutputs, Settings, Setup, Task
from esgd.randomness import Seeds

LossFunction = Callable[[nn.Module, Batch], Tensor]
"""A loss or a fitness, as a task has it."""


class Network:
    """A module on a device; its parameters are those of the individual that was loaded last. `Networks` with n = 1.

    Loading copies a row into tensors that stay the same for the whole run. Views of the row would save the copy, once
    a generation, but most would begin at odd addresses, where convolutions are 3–4% slower at every step; and a
    compiled network would be compiled again.
    """

    def __init__(self, setup: Setup, computing: Computing) -> None:
        self.setup, self.computing = setup, computing
        genome = setup.genome
        computing.check_precision(genome.dtype)
        self.module = genome.module(*genome.read(genome.template)).to(computing.device)
        named = dict(self.module.named_parameters())
        self.parameters = [named[name] for name in genome.names]
        self.sparse = any(isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse for m in self.module.modules())
        if computing.compile:
            compile_module(self.module)
        if computing.onednn:
            multiply_by_onednn(self.module)
        self.normalised = statistics_layers(self.module)
        self._made = self._modes = ModuleModes(self.module)
        self._layout = layout(self.module)
        self._writes = dict[bool, bool]()  # whether it writes into its input, by mode, once that has been seen

    def __len__(self) -> int:
        return 1

    def prepare(self, settings: Settings) -> None:
        """Apply a policy's settings to the network as make_model made it."""
        self._made.enter(training=True)
        self.setup.task.prepare(self.module, settings)
        self._modes = ModuleModes(self.module)

    def unprepare(self) -> None:
        """Continue without settings."""
        self._modes = self._made

    def enter(self, *, training: bool) -> AttributeSnapshot:
        """Put the network into a mode, with its plain attributes as they were at first."""
        return self._modes.enter(training=training)

    def lent(self, batch: Batch) -> Batch:
        """The batch; a copy of it, as long as it is not known that the network does not write into its input."""
        return copied(batch) if self._writes.get(self.module.training, True) else batch

    def judge(self, function: LossFunction, batch: Batch) -> Tensor:
        """A loss or a fitness of the loaded individual."""
        training, given = self.module.training, self.lent(self.computing.to_device(batch))
        before = None if training in self._writes else _versions(given)
        with self.computing.autocast():
            value = function(self.module, given)
        if before is not None:
            self._writes[training] = _versions(given) != before
        return value

    def check_layout(self) -> None:
        """Refuse a network that forward has given other parameters or buffers."""
        now = layout(self.module)
        for name in dict.fromkeys([*self._layout, *now]):
            if now.get(name) != self._layout.get(name):
                was, became = (found.get(name, "missing") for found in (self._layout, now))
                raise TaskError(
                    f"forward has changed the network: {name} was {was} and is {became}. An individual is a row and "
                    f"buffers of one layout, made before training. Build every layer in __init__; one that takes its "
                    f"shape from a batch can be given a batch inside make_model."
                )

    @torch.no_grad()
    def load(self, row: Row, buffers: Buffers) -> None:
        """Copy an individual into the network."""
        for parameter, value in zip(self.parameters, self.setup.genome.views(row).values(), strict=True):
            parameter.copy_(value)
            parameter.grad = None
        for name, buffer in persistent_buffers(self.module).items():
            buffer.copy_(buffers[name])

    def on_device(self, row: Row) -> list[Tensor]:
        """A row as tensors of the network's shapes, where the network is."""
        there: Row = self.computing.to_device(row)
        return list(self.setup.genome.views(there).values())

    def row(self) -> Row:
        """The loaded individual's parameters (a copy, on the CPU)."""
        return torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters]).cpu()

    def buffers(self, row: int = 0) -> dict[str, Tensor]:
        """The loaded individual's buffers (copies, on the CPU)."""
        return {name: b.detach().cpu().clone() for name, b in persistent_buffers(self.module).items()}

    @torch.no_grad()
    def calibrate(self, rows: Sequence[int] = (0,)) -> int:
        """Re-estimate BatchNorm statistics on the task's fixed batches, and switch to eval mode.

        The cumulative mean over the batches (momentum=None). Parents and offspring alike, before every fitness.
        """
        self.enter(training=False)
        if not self.normalised or not self.setup.buffers.samples:
            return 0
        task, samples = self.setup.task, 0

        def forward(batch: Batch) -> None:
            nonlocal samples
            self.judge(task.loss, batch)
            samples += task.size(batch)

        for layer in self.normalised:
            layer.reset_running_stats()
        reestimate(self.normalised, task.calibration(self.setup.buffers.samples), forward, momentum=lambda _: None)
        return samples

    def losses(self, rows: Sequence[int], batch: Batch) -> list[float]:
        self.enter(training=False)
        return [float(self.judge(self.setup.task.fitness, batch))]

    def losses_by_scale(self, rows: Sequence[int], batch: Batch, scales: Sequence[float]) -> list[list[float]]:
        assert isinstance(self.setup.task, ScoresOutputs), "only such a task has an output layer"
        self.enter(training=False)
        return [self.judge(fitness_by_scale(self.setup.task, scales), batch).tolist()]

    @cached_property
    def output_layer(self) -> list[int]:
        """The places of the parameters that multiply the output, among `parameters`; empty if there are none.

        They are looked for in a new network: the loaded one may have diverged.
        """
        names = found_output_layer(self.setup.task, self.setup.genome, self.setup.seeds, self.computing)
        return [self.setup.genome.names.index(name) for name in names]

    def overflowed(self) -> list[int]:
        limit = torch.finfo(self.setup.genome.dtype).max ** 0.5
        sound = all(bool((parameter.detach().abs() < limit).all()) for parameter in self.parameters)
        return [] if sound else [0]


def found_output_layer(task: Task, genome: Genome, seeds: Seeds, computing: Computing) -> list[str]:
    """The names of the parameters that multiply the output of the task's networks; none if there are none."""
    if not isinstance(task, ScoresOutputs):
        return []
    module = genome.module(*genome.read(genome.template)).to(computing.device).eval()
    part = computing.to_device(next(iter(task.parts()))[1])

    def outputs() -> Any:
        with computing.autocast():  # entered anew each time: it remembers parameters in the lower precision
            return task.output(module, copied(part))

    try:
        names = output_layer(module, genome.names, outputs, seeds("output layer"))
    except REFUSALS:  # such as a network that refuses parameters which are random
        return []
    if names:
        with torch.no_grad(), computing.autocast():
            check_outputs(task, module, part)
    return names


def _versions(batch: Batch) -> list[int]:
    """How often each tensor of a batch was written into."""
    return [tensor._version for tensor in tensors_in(batch) if not tensor.is_inference()]
