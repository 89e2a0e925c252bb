"""The SGD step of n individuals at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd._tensors.averages import IterateAverage
from esgd._tensors.batches import to_device
from esgd.engines.accumulation import batch_shares, batches_of_steps, optimizer_steps
from esgd.engines.batched.batches import joined, together
from esgd.engines.batched.chunk import Chunk
from esgd.engines.batched.columns import over
from esgd.engines.batched.network import BatchedNetwork
from esgd.engines.batched.optimizers import BatchedEquations, SeparateOptimizers, clipped, optimizer_family
from esgd.engines.contract import NetworkState, Outcome, Score, Stack
from esgd.engines.fitness import samples_in
from esgd.engines.optimizers import changes
from esgd.engines.sgd import BegunEpoch, no_batches, parts_until, repeats
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import OptimizerState
from esgd.protocols import Batch, Step, continues, returns
from esgd.randomness import Seeds, global_randomness, global_state, set_global_state
from esgd.schedules import Moment

UNROLLED = 4
"""SGD steps in one compiled call: between two calls Python takes as long as a small step. More take longer to compile
and gain little (decision 39)."""


@dataclass(frozen=True, eq=False)
class BatchedSnapshot:
    """A point of the trajectory of every row."""

    chunk: Chunk
    states: list[Any]
    fitness: Float[Tensor, " n"]
    moved: Bool[Tensor, " n"]
    place: Int[Tensor, " n"]


class BatchedTrajectory:
    """The trajectories of n individuals with the same settings and as many batches in a step; those of one family of
    optimizers are neighbours. `score` takes the fitness of a chunk, and, if it can, that of each row with its output
    times each of some numbers."""

    def __init__(
        self,
        batched: BatchedNetwork,
        starts: Sequence[NetworkState],
        policies: Sequence[Policy],
        seeds: Sequence[Seeds],
        step: Step,
        *,
        score: Callable[[Chunk, Sequence[float]], list[list[Score]]],
    ) -> None:
        self.batched, self.policies, self.seeds, self.step, self._take_scores = batched, policies, seeds, step, score
        self.setup, self.task, n = batched.setup, batched.setup.task, len(starts)
        self.chunk = Chunk.of(self.setup.genome, starts, batched.computing)
        self.work, self.settings, self._accumulate = Ledger(), policies[0].settings, policies[0].accumulate
        self.fitness = torch.tensor([start.fitness for start in starts], dtype=torch.float64)
        self.samples = 0
        self.moved, self.diverged = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
        self.end: BatchedSnapshot | None = None
        self._epoch, self._placed, self._places = 0, False, 0
        self._place = torch.zeros(n, dtype=torch.int64)
        self._continues = continues(self.setup.baggage)
        self._brought = [start.optimizer_state for start in starts]
        self._standing = self._brought if self._continues else []
        self._begun: BegunEpoch | None = None
        self._anchor = [] if step.anchor_row is None else batched.network.on_device(step.anchor_row)
        batched.network.prepare(self.settings)
        self._optimizers = self._families([start.optimizer_state for start in starts])
        self._steps, self._repeats = optimizer_steps(self.task, policies[0]), repeats(self.task, self.settings)
        self._taken = round(step.before * (self._steps or 0))
        clips = [inf if policy.clip_norm is None else policy.clip_norm for policy in policies]
        like = next(iter(self.chunk.stacks.values()))
        self._limits = torch.tensor(clips, dtype=like.dtype, device=like.device) if min(clips) < inf else None
        schedules = [policy.schedule for policy in policies]
        self._schedules = [each for i, each in enumerate(schedules) if each not in schedules[:i]]
        self._schedule_of = [self._schedules.index(each) for each in schedules]

    def _families(
        self, carried: Sequence[OptimizerState | None]
    ) -> list[tuple[slice, BatchedEquations | SeparateOptimizers]]:
        """Rows that share an optimizer's equations, as a slice of the stacks each."""
        families = [optimizer_family(policy) for policy in self.policies]
        found, begin = list[tuple[slice, BatchedEquations | SeparateOptimizers]](), 0
        while begin < len(families):
            end = begin + 1
            while end < len(families) and families[end] is families[begin]:
                end += 1
            rows = slice(begin, end)
            stacks = [stack[rows] for stack in self.chunk.stacks.values()]
            changed = [changes(self.setup.genome, policy) for policy in self.policies[rows]]
            found.append((rows, families[begin](stacks, self.policies[rows], carried[rows], changed)))
            begin = end
        return found

    @property
    def rows(self) -> Float[Tensor, "n d"]:
        return self.chunk.rows()

    @property
    def scalable(self) -> bool:
        return bool(self.batched.network.output_layer)

    def epoch(self) -> None:
        self._train_epoch(inf, ())

    def train(self, until: float, averages: Sequence[IterateAverage] = ()) -> None:
        for last in parts_until(until, self._epoch, self.step.before, self._steps):
            self._train_epoch(last, averages)

    def _train_epoch(self, last: float, averages: Sequence[IterateAverage]) -> None:
        """Steps up to number `last`, or to the end of the epoch."""
        s, begun = self._epoch, self._begun
        self._go_to_standing()
        self._begun = None
        with self.work.clock("sgd"), global_randomness(self.seeds[0].integer("globals", s)):
            own = self.seeds[0].at("own", s, *([begun.number] if begun else []))
            self.batched.network.enter(training=True).reseed(own)
            if begun is None:
                dealt = together(self.task, self.seeds, s, self.settings)
                begun = BegunEpoch(batches_of_steps(dealt, self._accumulate))
            else:
                set_global_state(begun.state)
            steps, stacks = self._steps or inf, list(self.chunk.stacks.values())
            coming = islice(begun.batches, None if last == inf else int(last) - begun.number)
            for taken in joined(coming, self._steps_in_a_call(averages)):
                self._update(taken, [s + (begun.number + n) / steps for n in range(len(taken))])
                begun.number += len(taken)
                self._pull()
                for average in averages:
                    average.take(stacks, epochs=1 / steps)
            if begun.number == 0:
                raise no_batches(s)
            if begun.number < last:
                self._epoch = s + 1
            else:
                begun.state, self._begun = global_state(), begun
        self._placed = False
        self._moved_on()

    def _steps_in_a_call(self, averages: Sequence[IterateAverage]) -> int:
        """Several where a call is compiled and nothing looks at the weights in between."""
        (_, optimizers), *others = self._optimizers
        if others or self._accumulate > 1 or isinstance(optimizers, SeparateOptimizers) or averages or self._anchor:
            return 1
        return UNROLLED if self.batched.computing.compile else 1

    def _pull(self) -> None:
        """Towards the anchor, if this step, counted over the whole run, is one of those."""
        anchor = self.step.anchor
        self._taken += 1
        if anchor is None or not self._anchor or self._taken % anchor.every:
            return
        for stack, there in zip(self.chunk.stacks.values(), self._anchor, strict=True):
            stack.lerp_(there, anchor.strength)

    def _go_to_standing(self) -> None:
        """Where SGD is not interrupted, go to where it stood."""
        for i, state in enumerate(self._standing):
            if state is not None and (place := state.place) is not None:
                there = Chunk.of(self.setup.genome, [NetworkState(*place)], self.batched.computing)
                for mine, theirs in ((self.chunk.stacks, there.stacks), (self.chunk.buffers, there.buffers)):
                    for name, stack in mine.items():
                        stack[i] = theirs[name][0]
        self._standing = []

    def _moved_on(self) -> None:
        self._places += 1
        self._place = torch.full_like(self._place, self._places)
        self.fitness, self.moved = torch.full_like(self.fitness, torch.nan), torch.ones_like(self.moved)

    def _factors(self, epoch: float) -> list[float]:
        """What the schedule of each row says."""
        step = self.step
        moment = Moment(epoch=epoch, epochs=step.epochs, before=step.before, total=step.total)
        drawn = [schedule(moment) for schedule in self._schedules]
        return [drawn[number] for number in self._schedule_of]

    def _update(self, steps: list[tuple[Batch, ...]], epochs: Sequence[float]) -> None:
        """One step or several, each with its batches and the epoch it is at."""
        samples = sum(self.task.size(_row(batch, 0)) for batches in steps for batch in batches)
        samples *= self._repeats * len(self.policies)
        steps = self.batched.computing.to_device(steps)
        factors = [self._factors(epoch) for epoch in epochs]
        (_, optimizers), *others = self._optimizers
        if others or self._accumulate > 1 or isinstance(optimizers, SeparateOptimizers):
            for batches, each in zip(steps, factors, strict=True):
                self._update_apart(batches, each)
        else:
            self.batched.steps(
                *(self.chunk.stacks, self.chunk.buffers, [batch for (batch,) in steps], self.settings),
                equations=optimizers,
                factors=factors,
                limits=self._limits,
            )
        self.work.sgd_forward += samples
        self.work.sgd_backward += samples

    def _update_apart(self, batches: Sequence[Batch], factors: list[float]) -> None:
        """Where equations differ, or a step has several batches: all gradients, then one family after the other."""
        gradients = self._gradients(batches)
        if self._limits is not None:
            gradients = clipped(gradients, self._limits)
        for rows, optimizers in self._optimizers:
            optimizers.step([None if gradient is None else gradient[rows] for gradient in gradients], factors[rows])

    def _gradients(self, batches: Sequence[Batch]) -> list[Tensor | None]:
        """Those of each row, of one batch or the mean of several."""
        stacks, buffers = self.chunk.stacks, self.chunk.buffers
        found = (self.batched.gradients(stacks, buffers, each, self.settings) for each in batches)
        if len(batches) == 1:
            return next(found)
        rows = [[_row(batch, i) for batch in batches] for i in range(len(self.policies))]
        shares = torch.tensor([batch_shares(self.task, row) for row in rows], dtype=torch.float64)
        total: list[Tensor | None] = [None] * len(stacks)
        for gradients, weights in zip(found, shares.unbind(dim=1), strict=True):
            total = [_plus(*each, weights) for each in zip(total, gradients, strict=True)]
        return total

    def measure(self) -> Float[Tensor, " n"]:
        self._measure(())
        return self.fitness

    def measure_scaled(self, scales: Sequence[float]) -> Float[Tensor, "s n"]:
        found = [each or [inf] * len(scales) for each in self._measure(scales)]
        return torch.tensor(found, dtype=torch.float64).T

    def _measure(self, scales: Sequence[float]) -> list[list[float]]:
        """Take the fitness; returns what it is for each row and scale, or nothing if outputs cannot be multiplied."""
        with self.work.clock("fitness"):
            found = self._take_scores(self.chunk, scales)
        scores = [score for score, *_ in found]
        self.samples = max(samples_in(score.parts) for score in scores)
        self.work.fitness_sgd += sum(score.samples for score in scores)
        self.work.fitness_saved += sum(score.saved for score in scores)
        self.fitness = torch.tensor([score.fitness for score in scores], dtype=torch.float64)
        self.diverged |= self.fitness == inf
        if (self.step.keep_ends or self._continues) and not self._placed:
            self.end = self.snapshot()
        return [[score.fitness for score in scaled] for _, *scaled in found]

    def scale(self, factors: Float[Tensor, " n"]) -> None:
        scaled, stacks, self._placed = factors != 1.0, list(self.chunk.stacks.values()), True
        for place in self.batched.network.output_layer:
            stacks[place].mul_(over(to_device(factors.to(stacks[place].dtype), stacks[place].device), stacks[place]))
        self._places += 1
        self._place = torch.where(scaled, self._places, self._place)
        self.fitness, self.moved = torch.where(scaled, torch.nan, self.fitness), self.moved | scaled

    def snapshot(self) -> BatchedSnapshot:
        states = [optimizers.snapshot() for _, optimizers in self._optimizers]
        return BatchedSnapshot(self.chunk.copy(), states, self.fitness.clone(), self.moved.clone(), self._place.clone())

    def restore(self, snapshot: BatchedSnapshot, where: Bool[Tensor, " n"]) -> None:
        if not where.any():
            return
        there = where.to(self.batched.computing.device)
        for mine, marked in (
            (self.chunk.stacks, snapshot.chunk.stacks),
            (self.chunk.buffers, snapshot.chunk.buffers),
        ):
            for name, stack in mine.items():
                torch.where(over(there, stack), marked[name], stack, out=stack)
        for (rows, optimizers), state in zip(self._optimizers, snapshot.states, strict=True):
            optimizers.restore(state, there[rows])
        self.fitness = torch.where(where, snapshot.fitness, self.fitness)
        self.moved = torch.where(where, snapshot.moved, self.moved)
        self._place = torch.where(where, snapshot.place, self._place)

    def place(self, rows: Float[Tensor, "n d"]) -> None:
        states = [replace(self.chunk.state(i), row=row) for i, row in enumerate(rows)]
        placed = Chunk.of(self.setup.genome, states, self.batched.computing)
        for name, stack in self.chunk.stacks.items():
            stack.copy_(placed.stacks[name])
        self._moved_on()
        self._placed = True

    def place_average(self, average: IterateAverage) -> None:
        for stack, mean in zip(self.chunk.stacks.values(), average.tensors, strict=True):
            stack.copy_(mean)
        self._moved_on()
        self._placed = True

    def coin(self, number: int) -> Float[Tensor, " n"]:
        draws = [torch.rand(1, generator=stream("coin", number), dtype=torch.float64) for stream in self.seeds]
        return torch.cat(draws)

    def outcome(self, refused: Int[Tensor, " n"]) -> tuple[Stack, list[Outcome], Ledger]:
        """Where each ended, and what happened on the way."""
        last = self.snapshot()
        outcomes = [
            Outcome(
                fitness=float(self.fitness[i]),
                moved=bool(self.moved[i]),
                refused=int(refused[i]),
                diverged=bool(self.diverged[i]),
                optimizer_state=self._continued(i) if self._continues else self._kept(last, i),
                end=self._end(i),
            )
            for i in range(len(self.policies))
        ]
        return Stack(self.rows, {name: stack.cpu() for name, stack in self.chunk.buffers.items()}), outcomes, self.work

    def _end(self, i: int) -> NetworkState | None:
        end = self.end
        if end is None or not self.step.keep_ends or not end.fitness[i] < inf:
            return None
        if self.moved[i] and not (self.step.keep_every_end and self._place[i] != end.place[i]):
            return None
        return replace(end.chunk.state(i), fitness=float(end.fitness[i]), optimizer_state=self._kept(end, i))

    def _continued(self, i: int) -> OptimizerState | None:
        """Where the next SGD step continues: at the end of this one, unless that has diverged or led nowhere."""
        end = self.end
        if end is None:
            return self._brought[i]  # nothing was trained
        led_nowhere = returns(self.setup.baggage) and not bool(self.moved[i])
        kept = self._kept(end, i) if end.fitness[i] < inf and not led_nowhere else None
        if kept is None or self._place[i] == end.place[i]:
            return kept
        reached = end.chunk.state(i)
        return kept.at(reached.row, reached.buffers)

    def _kept(self, point: BatchedSnapshot, i: int) -> OptimizerState | None:
        if not self.setup.baggage.keeps:
            return None
        for (rows, optimizers), state in zip(self._optimizers, point.states, strict=True):
            if rows.start <= i < rows.stop:
                return optimizers.kept_state(state, i - rows.start)
        raise AssertionError(f"row {i} has no optimizer")


def _row(batch: Batch, row: int) -> Batch:
    """The batch of one row."""
    return torch.utils._pytree.tree_map(lambda leaf: leaf[row], batch)


def _plus(total: Tensor | None, gradient: Tensor | None, weights: Float[Tensor, " n"]) -> Tensor | None:
    """A sum over batches, with the gradient of another one; each row has a weight."""
    if gradient is None:
        return total
    weighted = gradient * over(weights.to(gradient), gradient)
    return weighted if total is None else total.add_(weighted)
