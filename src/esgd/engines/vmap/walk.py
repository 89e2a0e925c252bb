"""The SGD step of n individuals at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd.engines.seat import Born
from esgd.engines.stint import Account, End, Stint
from esgd.engines.vmap.batches import together
from esgd.engines.vmap.chunk import Chunk, Examiner
from esgd.engines.vmap.descent import Equations, Separate, clipped, family
from esgd.engines.walk import Start, no_batches
from esgd.ledger import Work
from esgd.protocols import Batch, Step
from esgd.randomness import global_randomness
from esgd.schedules import Moment


@dataclass(frozen=True, eq=False)
class Mark:
    """A place on the walk of every row."""

    chunk: Chunk
    states: list[Any]
    fitness: Float[Tensor, " n"]
    moved: Bool[Tensor, " n"]


class ChunkWalk:
    """The walk of n individuals with the same settings, in step; those of one family of optimizers sit side by side."""

    def __init__(self, examiner: Examiner, starts: Sequence[Start], step: Step) -> None:
        self.examiner, self.starts, self.step = examiner, starts, step
        self.rules, self.network, n = examiner.rules, examiner.network, len(starts)
        born = [Born(start.row, start.buffers) for start in starts]
        self.chunk = Chunk.of(self.rules.genome, born, examiner.computing)
        self.work, self.settings = Work(), starts[0].policy.settings
        self.fitness = torch.tensor([start.fitness for start in starts], dtype=torch.float64)
        self.moved, self.diverged = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
        self.end: Mark | None = None
        self._epoch, self._placed = 0, False
        self.rules.task.prepare(self.network.module, self.settings)
        self._descents = self._families()
        self._steps = self.rules.task.steps(self.settings)
        clips = [inf if start.policy.clip_norm is None else start.policy.clip_norm for start in starts]
        like = next(iter(self.chunk.stacks.values()))
        self._limits = torch.tensor(clips, dtype=like.dtype, device=like.device) if min(clips) < inf else None
        schedules = [start.policy.schedule for start in starts]
        self._schedules = [each for i, each in enumerate(schedules) if each not in schedules[:i]]
        self._schedule_of = [self._schedules.index(each) for each in schedules]

    def _families(self) -> list[tuple[slice, Equations | Separate]]:
        """Rows that share an optimizer's equations, as a slice of the stacks each."""
        families = [family(start.policy) for start in self.starts]
        found, begin = list[tuple[slice, Equations | Separate]](), 0
        while begin < len(families):
            end = begin + 1
            while end < len(families) and families[end] is families[begin]:
                end += 1
            rows, some = slice(begin, end), self.starts[begin:end]
            stacks = [stack[rows] for stack in self.chunk.stacks.values()]
            policies, baggage = [start.policy for start in some], [start.baggage for start in some]
            found.append((rows, families[begin](stacks, policies, baggage)))
            begin = end
        return found

    @property
    def rows(self) -> Float[Tensor, "n d"]:
        return self.chunk.rows()

    def epoch(self) -> None:
        s, walks = self._epoch, [start.seeds for start in self.starts]
        with self.work.clock("sgd"), global_randomness(walks[0].integer("globals", s)):
            self.network.module.train()
            number = -1
            for number, batch in enumerate(together(self.rules.task, walks, s, self.settings)):
                self._update(batch, s + number / self._steps if self._steps else s)
            if number < 0:
                raise no_batches(s)
        self._epoch, self._placed = s + 1, False
        self.fitness, self.moved = torch.full_like(self.fitness, torch.nan), torch.ones_like(self.moved)

    def _update(self, batch: Batch, epoch: float) -> None:
        step = self.step
        moment = Moment(epoch=epoch, epochs=step.epochs, before=step.before, total=step.total)
        samples = self.rules.task.size(_first(batch)) * len(self.starts)
        batch = self.examiner.computing.to_device(batch)
        drawn = [schedule(moment) for schedule in self._schedules]
        factors = [drawn[number] for number in self._schedule_of]
        (_, descent), *others = self._descents
        if others or isinstance(descent, Separate):
            self._update_apart(batch, factors)
        else:
            self.network.step(
                *(self.chunk.stacks, self.chunk.buffers, batch, self.settings),
                equations=descent,
                factors=factors,
                limits=self._limits,
            )
        self.work.sgd_forward += samples
        self.work.sgd_backward += samples

    def _update_apart(self, batch: Batch, factors: list[float]) -> None:
        """Where equations differ: all gradients, then one family after the other."""
        gradients = self.network.gradients(self.chunk.stacks, self.chunk.buffers, batch, self.settings)
        if self._limits is not None:
            gradients = clipped(gradients, self._limits)
        for rows, descent in self._descents:
            descent.step([None if gradient is None else gradient[rows] for gradient in gradients], factors[rows])

    def measure(self) -> Float[Tensor, " n"]:
        with self.work.clock("fitness"):
            scores = self.examiner.scores(self.chunk)
        self.work.fitness_sgd += sum(score.samples for score in scores)
        self.work.fitness_saved += sum(score.saved for score in scores)
        self.fitness = torch.tensor([score.fitness for score in scores], dtype=torch.float64)
        self.diverged |= self.fitness == inf
        if self.step.keep_ends and not self._placed:
            self.end = self.mark()
        return self.fitness

    def mark(self) -> Mark:
        states = [descent.mark() for _, descent in self._descents]
        return Mark(self.chunk.copy(), states, self.fitness.clone(), self.moved.clone())

    def restore(self, mark: Mark, where: Bool[Tensor, " n"]) -> None:
        if not where.any():
            return
        there = where.to(self.examiner.computing.device)
        for mine, marked in (
            (self.chunk.stacks, mark.chunk.stacks),
            (self.chunk.buffers, mark.chunk.buffers),
        ):
            for name, stack in mine.items():
                stack[there] = marked[name][there]
        for (rows, descent), state in zip(self._descents, mark.states, strict=True):
            descent.restore(state, there[rows])
        self.fitness = torch.where(where, mark.fitness, self.fitness)
        self.moved = torch.where(where, mark.moved, self.moved)

    def place(self, rows: Float[Tensor, "n d"]) -> None:
        buffers = self.chunk.buffers
        born = [Born(row, {name: stack[i] for name, stack in buffers.items()}) for i, row in enumerate(rows)]
        placed = Chunk.of(self.rules.genome, born, self.examiner.computing)
        for name, stack in self.chunk.stacks.items():
            stack.copy_(placed.stacks[name])
        self.fitness, self.moved = torch.full_like(self.fitness, torch.nan), torch.ones_like(self.moved)
        self._placed = True

    def coin(self, number: int) -> Float[Tensor, " n"]:
        draws = [torch.rand(1, generator=start.seeds("coin", number), dtype=torch.float64) for start in self.starts]
        return torch.cat(draws)

    def outcome(self, refused: Int[Tensor, " n"]) -> Stint:
        """What came of it."""
        last = self.mark()
        keeps, n = self.rules.baggage.keeps, len(self.starts)
        account = Account(
            fitness=self.fitness,
            moved=self.moved,
            refused=refused,
            diverged=self.diverged,
            baggage=[self._baggage(last, i) if keeps else None for i in range(n)],
            ends=[self._end(i) for i in range(n)],
            work=self.work,
        )
        return Stint(self.rows, {name: stack.cpu() for name, stack in self.chunk.buffers.items()}, account)

    def _end(self, i: int) -> End | None:
        end = self.end
        if end is None or self.moved[i] or not end.fitness[i] < inf:
            return None
        born, keeps = end.chunk.born(i), self.rules.baggage.keeps
        return End(born.row, born.buffers, float(end.fitness[i]), self._baggage(end, i) if keeps else None)

    def _baggage(self, mark: Mark, i: int) -> Any:
        for (rows, descent), state in zip(self._descents, mark.states, strict=True):
            if rows.start <= i < rows.stop:
                return descent.baggage(state, i - rows.start)
        raise AssertionError(f"row {i} has no optimizer")


def _first(batch: Batch) -> Batch:
    """The batch of the first row."""
    return torch.utils._pytree.tree_map(lambda leaf: leaf[0], batch)
