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
from esgd.engines.jobs import in_groups
from esgd.engines.seat import ROUNDING, Begun, Born, Score, Seat, check_sign, samples_in
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

    def picked(self, rows: Sequence[int], n: int) -> Chunk:
        """These rows, with copies of the last one behind them, n in all."""
        if list(rows) == list(range(n)) and len(self) == n:
            return self
        index = torch.tensor([*rows, *[rows[-1]] * (n - len(rows))])
        return Chunk(
            self.genome,
            {name: stack[index] for name, stack in self.stacks.items()},
            {name: stack[index] for name, stack in self.buffers.items()},
        )

    def exploded(self) -> list[int]:
        """The rows that have a parameter which is NaN or so large that its square overflows."""
        limit = torch.finfo(self.genome.dtype).max ** 0.5
        sound = torch.stack([(stack.reshape(len(self), -1).abs() < limit).all(dim=1) for stack in self.stacks.values()])
        return [i for i, fine in enumerate(sound.all(dim=0).tolist()) if not fine]

    def born(self, i: int) -> Born:
        """One individual (copies, on the CPU)."""
        row = torch.cat([stack[i].reshape(-1) for stack in self.stacks.values()]).cpu()
        return Born(row, {name: stack[i].cpu().clone() for name, stack in self.buffers.items()})


class Examiner:
    """Takes the fitness of chunks.

    A matrix product may round differently for another number of rows, and a fitness must not depend on who is examined
    at the same time: chunks are filled up to the number of seats, always.
    """

    def __init__(self, rules: Rules, computing: Computing, network: Network, seat: Seat, seats: int) -> None:
        self.rules, self.computing, self.network, self.seat, self.seats = rules, computing, network, seat, seats
        self.singly = False  # for a fitness that cannot be batched
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
        samples = 0
        if self.singly:
            for i in range(len(chunk)):
                self.seat.put(chunk.born(i).row, chunk.born(i).buffers)
                samples = self.seat.calibrate()
                for name, value in self.seat.buffers().items():
                    chunk.buffers[name][i] = value
            return samples
        for rows in in_groups(range(len(chunk)), self.seats):
            full = chunk.picked(rows, self.seats)
            samples = self._calibrate(full)
            for name, stack in chunk.buffers.items():
                stack[rows[0] : rows[-1] + 1] = full.buffers[name][: len(rows)]
        return samples

    def _calibrate(self, full: Chunk) -> int:
        for name in self._normalised:
            full.buffers[f"{name}.running_mean"].zero_()
            full.buffers[f"{name}.running_var"].fill_(1.0)
            full.buffers[f"{name}.num_batches_tracked"].zero_()
        self.network.module.eval()
        layers, samples = self.seat.normalised, 0
        momenta = [layer.momentum for layer in layers]
        try:
            for number, batch in enumerate(self.rules.task.calibration(self.rules.buffers.samples), start=1):
                for layer in layers:
                    layer.train()
                    layer.momentum = 1 / number  # the mean so far: what momentum=None reads off a counter
                self.network.forward(full.stacks, full.buffers, self.computing.to_device(batch))
                samples += self.rules.task.size(batch)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum
        return samples

    def scores(self, chunk: Chunk, cutoff: float = inf, begun: Sequence[Begun] = ()) -> list[Score]:
        """As `Seat.score`, for any number of rows. Those that a network or loss refuses have diverged."""
        begun = begun or [{}] * len(chunk)
        if self.singly:
            return [self._alone(chunk, i, cutoff, parts) for i, parts in enumerate(begun)]
        try:
            return self._scores(chunk, cutoff, begun)
        except (ArithmeticError, RuntimeError, ValueError):
            lost = chunk.exploded()
            if not lost:
                raise
        found = {i: Score(inf, True, 0, 0, {}, chunk.born(i).buffers) for i in lost}
        sound = [i for i in range(len(chunk)) if i not in lost]
        if sound:
            others = chunk.picked(sound, len(sound))
            found.update(zip(sound, self._scores(others, cutoff, [begun[i] for i in sound]), strict=True))
            for name, stack in chunk.buffers.items():
                stack[sound] = others.buffers[name]
        return [found[i] for i in range(len(chunk))]

    def _alone(self, chunk: Chunk, i: int, cutoff: float, parts: Begun) -> Score:
        each = chunk.born(i)
        self.seat.put(each.row, each.buffers)
        score = self.seat.score(cutoff, parts)
        for name, value in score.buffers.items():
            chunk.buffers[name][i] = value
        return score

    @torch.no_grad()
    def _scores(self, chunk: Chunk, cutoff: float, begun: Sequence[Begun]) -> list[Score]:
        """Part by part, and with each part only those it can still help."""
        task, calibrated = self.rules.task, self.calibrate(chunk)
        self.network.module.eval()
        total, may_stop = self._samples, task.nonnegative and self._samples is not None and cutoff < inf
        parts = [dict(each) for each in begun]
        before, open_ = [samples_in(each) for each in parts], list(range(len(chunk)))
        for part, batch in task.parts(self._hardest if may_stop else None):
            size, batch = task.size(batch), self.computing.to_device(batch)
            for rows in in_groups([i for i in open_ if part not in parts[i]], self.seats):
                full = chunk.picked(rows, self.seats)
                losses = self.network.fitness(full.stacks, full.buffers, batch).tolist()
                for i, loss in zip(rows, losses, strict=False):  # what fills it up is not looked at
                    check_sign(task, part, loss)
                    parts[i][part] = (loss, size)
            if total is not None:
                open_ = [i for i in open_ if not _settled(parts[i], total, cutoff if may_stop else inf)]
            if not open_:
                break
        seen = max(map(samples_in, parts))
        if seen == 0:
            raise TaskError("the fitness data have no samples. Give fitness= at least one, anew each time it is asked.")
        if open_:
            self._samples, known = seen, [parts[i] for i in open_]
            self._hardest = sorted(known[0], key=lambda part: (-sum(each[part][0] for each in known), part))
        return [
            self._score(chunk, i, parts[i], samples_in(parts[i]) - before[i] + calibrated) for i in range(len(chunk))
        ]

    def _score(self, chunk: Chunk, i: int, parts: Begun, samples: int) -> Score:
        saved = (self._samples or 0) - samples_in(parts)
        complete = not saved or not all(isfinite(loss) for loss, _ in parts.values())
        fitness = sum(parts[part][0] for part in sorted(parts)) / samples_in(parts) if complete else inf
        buffers = {name: stack[i].cpu().clone() for name, stack in chunk.buffers.items()}
        return Score(fitness if isfinite(fitness) else inf, complete, samples, saved, parts, buffers)


def _settled(parts: Begun, total: int, cutoff: float) -> bool:
    """Whether more parts cannot change anything: the row has diverged, or is above the cut-off already."""
    losses = [loss for loss, _ in parts.values()]
    return not all(map(isfinite, losses)) or sum(losses) / total > cutoff * (1 + ROUNDING)
