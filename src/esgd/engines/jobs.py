"""The jobs that a generation is cut into, and how a kernel does each of them.

A job is a value: it says everything about a piece of work, so it can run in this process, in another one or on another
machine, now or again after a worker was lost. Rows are written to where they belong (`into`); the rest is returned.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.engines.contract import (
    IndividualSink,
    IndividualSource,
    JobResult,
    Kernel,
    NetworkState,
    Outcome,
    Parts,
    Score,
    Stack,
    in_groups,
)
from esgd.engines.fitness import samples_in
from esgd.engines.range_test import RangeTest
from esgd.genome import Row
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import Birth, OptimizerState
from esgd.protocols import Setup, Step, shrinks
from esgd.randomness import Seeds


@dataclass(frozen=True, eq=False, kw_only=True)
class Train:
    """Train individuals `numbers`, all at once if the kernel can, and write them into the same places."""

    numbers: tuple[int, ...]
    start: IndividualSource
    fitness: tuple[float, ...]
    optimizer_states: tuple[OptimizerState | None, ...]
    policies: tuple[Policy, ...]
    step: Step
    into: IndividualSink

    def run(self, kernel: Kernel) -> JobResult[Outcome]:
        kernel.forget_order()
        given = self.start.take(self.numbers)
        seeds = [kernel.setup.seeds.at("sgd", self.step.k, j) for j in self.numbers]
        starts = [self._start(i, given.state(i), seeds[i], kernel.setup) for i in range(len(self.numbers))]
        stack, outcomes, work = kernel.train(starts, self.policies, seeds, self.step)
        self.into.put(self.numbers, stack)
        return JobResult(outcomes, work)

    def _start(self, i: int, state: NetworkState, seeds: Seeds, setup: Setup) -> NetworkState:
        """Where SGD begins: at the individual, where it stood before, or, without state, at smaller parameters."""
        brought, most = self.optimizer_states[i], shrinks(setup.baggage)
        if most and brought is None and self.step.k > 1 and self.step.epochs:
            factor = 1.0 - most * float(torch.rand((), generator=seeds("shrink"), dtype=torch.float64))
            brought = OptimizerState("", {}).at(state.row * factor, state.buffers)
        return replace(state, fitness=self.fitness[i], optimizer_state=brought)

    def __str__(self) -> str:
        which = ", ".join(str(j) for j in self.numbers)
        return f"the SGD step of individual {which} in generation {self.step.k}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluate:
    """Build births, take their fitness, drop them. `best` are the fitnesses known so far; `elites` of them count."""

    first: int
    births: tuple[Birth, ...]
    parents: IndividualSource
    best: tuple[float, ...]
    elites: int | None

    def run(self, kernel: Kernel) -> JobResult[Score]:
        if self.first == 0:
            kernel.forget_order()
        found, work, best = list[Score](), Ledger(), list(self.best)
        for births in in_groups(self.births, kernel.rows_at_once):
            with work.clock("evolution"):
                born = [build_offspring(kernel.setup, self.parents, birth) for birth in births]
            cutoff = best[self.elites - 1] if self.elites is not None and self.elites <= len(best) else inf
            with work.clock("fitness"):
                scores = kernel.score(born, cutoff, [{}] * len(born))
            for score in scores:
                insort(best, score.fitness)
                work.fitness_evolution += score.samples
                work.fitness_saved += score.saved
                found.append(Score(score.fitness, score.complete, 0, 0, {} if score.complete else score.parts))
        return JobResult(found, work)

    def __str__(self) -> str:
        return f"the fitness of offspring {self.births[0].id} to {self.births[-1].id}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Build:
    """Build surviving births again into `places`, and finish their evaluation where it was aborted.

    `fitness` is None where it is not known; then `begun` are the parts to continue from.
    """

    births: tuple[Birth, ...]
    places: tuple[int, ...]
    parents: IndividualSource
    fitness: tuple[float | None, ...]
    begun: tuple[Parts, ...]
    into: IndividualSink

    def run(self, kernel: Kernel) -> JobResult[Score]:
        found, work = list[Score](), Ledger()
        for these in in_groups(range(len(self.births)), kernel.rows_at_once):
            with work.clock("evolution"):
                born = [build_offspring(kernel.setup, self.parents, self.births[i]) for i in these]
            with work.clock("fitness"):
                scores = self._finished(kernel, dict(zip(these, born, strict=True)), work)
            for i, each in zip(these, born, strict=True):
                self.into.put([self.places[i]], Stack.of([replace(each, buffers=scores[i].buffers)]))
                found.append(Score(scores[i].fitness, True, 0, 0, {}))
        return JobResult(found, work)

    def _finished(self, kernel: Kernel, born: dict[int, NetworkState], work: Ledger) -> dict[int, Score]:
        """Complete scores, with the buffers that belong to them."""
        scores = dict[int, Score]()
        known = {i: fitness for i in born if (fitness := self.fitness[i]) is not None}
        unknown = [i for i in born if i not in known]
        for i, (buffers, samples) in zip(known, kernel.calibrate([born[i] for i in known]), strict=True):
            scores[i] = Score(known[i], True, samples, 0, {}, buffers)
            work.fitness_evolution += samples
        begun = [self.begun[i] for i in unknown]
        for i, score in zip(unknown, kernel.score([born[i] for i in unknown], inf, begun), strict=True):
            scores[i] = score
            work.fitness_evolution += score.samples
            if self.begun[i]:  # its saving was counted too early: it is needed after all
                work.fitness_saved -= samples_in(score.parts) - samples_in(self.begun[i])
        return scores

    def __str__(self) -> str:
        return f"building the survivors {self.births[0].id} to {self.births[-1].id}"


Job = Train | Evaluate | Build | RangeTest


def build_offspring(setup: Setup, parents: IndividualSource, birth: Birth) -> NetworkState:
    """Recombination, then mutation (Eq. 12); buffers by their rule."""
    mates = parents.take(birth.mates)
    row = _recombined(setup, mates.rows, birth.weights)
    if birth.sigma:
        row = setup.mutation(row, birth.sigma, setup.seeds("noise", birth.id), setup.genome)
    return NetworkState(row, setup.buffers(mates.buffers))


def _recombined(setup: Setup, rows: Float[Tensor, "rho d"], weights: Sequence[float]) -> Row:
    """One row from those of the mates; without weights they count the same."""
    rule: Any = setup.recombination
    if setup.recombines_by_layout:
        row: Row = rule(rows, tuple(weights) or (1.0 / len(rows),) * len(rows), setup.genome)
        return row
    row = torch.tensor(weights, dtype=rows.dtype) @ rows if weights else rule(rows)
    return row
