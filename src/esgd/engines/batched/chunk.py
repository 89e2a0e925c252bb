"""n individuals on a device as stacks of tensors, scored by one batched computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from esgd._tensors.batches import to_device
from esgd.engines.batched.network import BatchedNetwork
from esgd.engines.computing import Computing
from esgd.engines.contract import NetworkState, in_groups
from esgd.engines.fitness import reestimate
from esgd.genome import Buffers, Genome
from esgd.protocols import Batch


@dataclass(frozen=True, eq=False)
class Chunk:
    """A stack of shape (n, *shape) for each parameter and each buffer, by name."""

    genome: Genome
    stacks: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @staticmethod
    def of(genome: Genome, states: Sequence[NetworkState], computing: Computing) -> Chunk:
        """Copies of these individuals, on the device."""
        rows = torch.stack([state.row for state in states]).to(computing.device)
        parts = zip(genome.names, genome.slices(), genome.shapes, strict=True)
        stacks = {name: rows[:, where].reshape(len(states), *shape).contiguous() for name, where, shape in parts}
        names = states[0].buffers
        buffers = {name: torch.stack([each.buffers[name] for each in states]).to(computing.device) for name in names}
        return Chunk(genome, stacks, buffers)

    def __len__(self) -> int:
        return len(next(iter(self.stacks.values())))

    def rows(self) -> Float[Tensor, "n d"]:
        """The rows (copies, on the CPU)."""
        return torch.cat([stack.reshape(len(self), -1) for stack in self.stacks.values()], dim=1).cpu()

    def copy(self) -> Chunk:
        return Chunk(
            self.genome,
            {name: stack.clone() for name, stack in self.stacks.items()},
            {name: stack.clone() for name, stack in self.buffers.items()},
        )

    def picked(self, rows: Sequence[int], n: int, stacks: dict[str, Tensor] | None = None) -> Chunk:
        """These rows, followed by copies of the last one, n in all; `stacks` are its parameters if they are known."""
        if list(rows) == list(range(n)) and len(self) == n:
            return self
        like = next(iter(self.stacks.values()))
        index = to_device(torch.tensor([*rows, *[rows[-1]] * (n - len(rows))]), like.device)
        return Chunk(
            self.genome,
            stacks or {name: stack[index] for name, stack in self.stacks.items()},
            {name: stack[index] for name, stack in self.buffers.items()},
        )

    def overflowed(self) -> list[int]:
        """The rows that have a parameter which is NaN or so large that its square overflows."""
        limit = torch.finfo(self.genome.dtype).max ** 0.5
        sound = torch.stack([(stack.reshape(len(self), -1).abs() < limit).all(dim=1) for stack in self.stacks.values()])
        return [i for i, fine in enumerate(sound.all(dim=0).tolist()) if not fine]

    def state(self, i: int) -> NetworkState:
        """One individual (copies, on the CPU)."""
        row = torch.cat([stack[i].reshape(-1) for stack in self.stacks.values()]).cpu()
        return NetworkState(row, {name: stack[i].cpu().clone() for name, stack in self.buffers.items()})

    def set_buffers(self, i: int, buffers: Buffers) -> None:
        """Give one individual these buffers."""
        for name, value in buffers.items():
            self.buffers[name][i] = value


@dataclass(frozen=True, eq=False)
class ChunkNetworks:
    """A chunk as `Networks` that can be scored, `width` rows at a time.

    A matrix product may round differently for another number of rows, and a fitness must not depend on what else is
    scored at the same time: what is scored has `width` rows, always. They are copies that begin at aligned addresses,
    and the parts of a fitness share them: to copy 784-128-64-10 takes a fifth as long as to score it on 128 samples.
    """

    chunk: Chunk
    batched: BatchedNetwork
    width: int
    _picked: dict[tuple[int, ...], dict[str, Tensor]] = field(default_factory=dict)  # parameters of the last groups

    def __len__(self) -> int:
        return len(self.chunk)

    @torch.no_grad()
    def calibrate(self, rows: Sequence[int]) -> int:
        self.batched.network.enter(training=False)
        samples, setup = 0, self.batched.setup
        if self.batched.normalised and setup.buffers.samples:
            for group in in_groups(rows, self.width):
                full = self.chunk.picked(group, self.width)
                samples = self._calibrate(full, setup.buffers.samples)
                if full is not self.chunk:
                    index = to_device(torch.tensor(list(group)), torch.device(self.batched.computing.device))
                    for name, stack in self.chunk.buffers.items():
                        stack.index_copy_(0, index, full.buffers[name][: len(group)])
        return samples

    def _calibrate(self, full: Chunk, wanted: int) -> int:
        task, samples = self.batched.setup.task, 0
        for name in self.batched.normalised:
            full.buffers[f"{name}.running_mean"].zero_()
            full.buffers[f"{name}.running_var"].fill_(1.0)
            full.buffers[f"{name}.num_batches_tracked"].zero_()

        def forward(batch: Batch) -> None:
            nonlocal samples
            given = self.batched.network.lent(self.batched.computing.to_device(batch))
            self.batched.forward(full.stacks, full.buffers, given)
            samples += task.size(batch)

        layers = list(self.batched.normalised.values())
        # The mean so far: what momentum=None reads off a counter, which has no single value here.
        reestimate(layers, task.calibration(wanted), forward, momentum=lambda number: 1 / number)
        return samples

    def losses(self, rows: Sequence[int], batch: Batch) -> list[float]:
        return self._scored(rows, batch, self.batched.fitness).tolist()  # the one time that the host waits

    def losses_by_scale(self, rows: Sequence[int], batch: Batch, scales: Sequence[float]) -> list[list[float]]:
        return self._scored(rows, batch, partial(self.batched.fitness_by_scale, scales=scales)).tolist()

    @property
    def output_layer(self) -> list[int]:
        return self.batched.network.output_layer

    def _scored(self, rows: Sequence[int], batch: Batch, fitness: Callable[..., Tensor]) -> Tensor:
        """What a function of stacks, buffers and a part gives for these rows."""
        batch, found = self.batched.computing.to_device(batch), list[Tensor]()
        groups = [tuple(group) for group in in_groups(rows, self.width)]
        for gone in self._picked.keys() - set(groups):
            del self._picked[gone]
        for group in groups:
            full = self.chunk.picked(group, self.width, self._picked.get(group))
            self._picked[group] = full.stacks
            self.batched.network.enter(training=False)
            losses = fitness(full.stacks, full.buffers, self.batched.network.lent(batch))
            found.append(losses[: len(group)])
        return torch.cat(found)

    def check_layout(self) -> None:
        self.batched.network.check_layout()

    def overflowed(self) -> list[int]:
        return self.chunk.overflowed()

    def buffers(self, row: int) -> Buffers:
        return {name: stack[row].cpu().clone() for name, stack in self.chunk.buffers.items()}
