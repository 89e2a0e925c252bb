"""n individuals on a device as stacks, scored by one batched computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.engines.computing import Computing
from esgd.engines.seat import ROUNDING, Born, Score, Seat, check_sign
from esgd.engines.vmap.network import Network
from esgd.errors import TaskError
from esgd.genome import Genome
from esgd.protocols import Rules


@dataclass(frozen=True, eq=False)
class Chunk:
    """A stack of shape (n, *shape) for each parameter and each buffer, by name."""

    genome: Genome
    stacks: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @staticmethod
    def of(genome: Genome, born: Sequence[Born], computing: Computing) -> Chunk:
        """Copies of these individuals, on the device."""
        rows = torch.stack([each.row for each in born]).to(computing.device)
        parts = zip(genome.names, genome.slices(), genome.shapes, strict=True)
        stacks = {name: rows[:, where].reshape(len(born), *shape).contiguous() for name, where, shape in parts}
        names = born[0].buffers
        buffers = {name: torch.stack([each.buffers[name] for each in born]).to(computing.device) for name in names}
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

    def exploded(self) -> bool:
        """Whether any row has a parameter that is NaN or so large that its square overflows."""
        limit = torch.finfo(self.genome.dtype).max ** 0.5
        return not all(bool((stack.abs() < limit).all()) for stack in self.stacks.values())


class Examiner:
    """Takes the fitness of chunks."""

    def __init__(self, rules: Rules, computing: Computing, network: Network, seat: Seat) -> None:
        self.rules, self.computing, self.network, self.seat = rules, computing, network, seat
        self._samples: int | None = None
        self._hardest: Sequence[int] | None = None

    def forget_order(self) -> None:
        self._hardest = None

    @cached_property
    def _normalised(self) -> list[str]:
        """Names of the BatchNorm layers that keep statistics."""
        names = {id(layer): name for name, layer in self.network.module.named_modules()}
        return [names[id(layer)] for layer in self.seat.normalised]

    @torch.no_grad()
    def calibrate(self, chunk: Chunk) -> int:
        """As `Seat.calibrate`, for all rows."""
        if not self._normalised or not self.rules.buffers.samples:
            return 0
        for name in self._normalised:
            chunk.buffers[f"{name}.running_mean"].zero_()
            chunk.buffers[f"{name}.running_var"].fill_(1.0)
            chunk.buffers[f"{name}.num_batches_tracked"].zero_()
        self.network.module.eval()
        layers, samples = self.seat.normalised, 0
        momenta = [layer.momentum for layer in layers]
        try:
            for number, batch in enumerate(self.rules.task.calibration(self.rules.buffers.samples), start=1):
                for layer in layers:
                    layer.train()
                    layer.momentum = 1 / number  # the mean so far: what momentum=None reads off a counter
                self.network.forward(chunk.stacks, chunk.buffers, self.computing.to_device(batch))
                samples += self.rules.task.size(batch)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum
        return samples

    @torch.no_grad()
    def scores(self, chunk: Chunk, cutoff: float = inf) -> list[Score]:
        """As `Seat.score`, for all rows; it stops early once no row can reach the cut-off."""
        task, n, calibrated = self.rules.task, len(chunk), self.calibrate(chunk)
        self.network.module.eval()
        total, seen = self._samples, 0
        parts = [dict[int, tuple[float, int]]() for _ in range(n)]
        partial, lost, over = [0.0] * n, [False] * n, [False] * n
        may_stop = task.nonnegative and total is not None and cutoff < inf
        for part, batch in task.parts(self._hardest if may_stop else None):
            losses = self.network.fitness(chunk.stacks, chunk.buffers, self.computing.to_device(batch)).tolist()
            size = task.size(batch)
            seen += size
            for i, loss in enumerate(losses):
                check_sign(task, part, loss)
                parts[i][part], partial[i] = (loss, size), partial[i] + loss
                lost[i] |= not isfinite(loss)
                over[i] |= may_stop and partial[i] / (total or 1) > cutoff * (1 + ROUNDING)
            if total is not None and seen < total and all(a or b for a, b in zip(lost, over, strict=True)):
                break
        if seen == 0:
            raise TaskError("the fitness data have no samples. Give fitness= at least one, anew each time it is asked.")
        saved = (total or seen) - seen
        if not saved:
            self._samples = seen
            self._hardest = sorted(parts[0], key=lambda part: (-sum(each[part][0] for each in parts), part))
        found = []
        for i in range(n):
            buffers = {name: stack[i].cpu().clone() for name, stack in chunk.buffers.items()}
            fitness = sum(parts[i][part][0] for part in sorted(parts[i])) / seen
            complete = lost[i] or not saved
            fitness = fitness if complete and isfinite(fitness) else inf
            found.append(Score(fitness, complete, seen + calibrated, saved, parts[i], buffers))
        return found
