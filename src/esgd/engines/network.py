"""One network on one device, into which individuals are loaded to be trained and scored."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from esgd.engines.computing import Computing
from esgd.engines.fitness import reestimate, statistics_layers
from esgd.genome import Buffers, Row, persistent_buffers
from esgd.protocols import Batch, Rules


class Network:
    """A module on a device; its parameters are those of the individual that was loaded last. `Networks` with n = 1.

    Loading copies a row into tensors that stay the same for the whole run. Views of the row would save the copy, once
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
        self.normalised = statistics_layers(self.module)

    def __len__(self) -> int:
        return 1

    @torch.no_grad()
    def load(self, row: Row, buffers: Buffers) -> None:
        """Copy an individual into the network."""
        for parameter, value in zip(self.parameters, self.rules.genome.views(row).values(), strict=True):
            parameter.copy_(value)
            parameter.grad = None
        for name, buffer in persistent_buffers(self.module).items():
            buffer.copy_(buffers[name])

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
        self.module.eval()
        if not self.normalised or not self.rules.buffers.samples:
            return 0
        task, samples = self.rules.task, 0

        def forward(batch: Batch) -> None:
            nonlocal samples
            with self.computing.autocast():
                task.loss(self.module, self.computing.to_device(batch))
            samples += task.size(batch)

        for layer in self.normalised:
            layer.reset_running_stats()
        reestimate(self.normalised, task.calibration(self.rules.buffers.samples), forward, momentum=lambda _: None)
        return samples

    def losses(self, rows: Sequence[int], batch: Batch) -> list[float]:
        with self.computing.autocast():
            return [float(self.rules.task.fitness(self.module, self.computing.to_device(batch)))]

    def overflowed(self) -> list[int]:
        limit = torch.finfo(self.rules.genome.dtype).max ** 0.5
        sound = all(bool((parameter.detach().abs() < limit).all()) for parameter in self.parameters)
        return [] if sound else [0]
