"""The dispatcher that all engines share: it cuts a generation into jobs, hands them out, and joins the results.

Engines differ in what runs the jobs (`Executor`) and in which individuals train together (`Grouping`); never in what
comes out.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil, inf
from time import perf_counter

import torch

from esgd.engines.contract import Executor, Outcome, Stack
from esgd.engines.jobs import Build, Evaluate, Job, Train
from esgd.engines.range_test import RangeTest
from esgd.genome import Row
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import Scores, Setup, Step, Tick, Trained, continues
from esgd.ranges import FoundRange

Grouping = Callable[[Sequence[Policy]], list[list[int]]]
"""Which individuals train together, decided from their policies alone: the number of workers must not matter."""

JOBS_PER_WORKER = 8
"""Evaluations are cut into so many jobs for each worker: few enough to be cheap, enough to balance."""


class Dispatcher:
    """A `Session` whose jobs are run by an executor."""

    def __init__(self, setup: Setup, executor: Executor, *, grouping: Grouping, rows_at_once: int, tick: Tick) -> None:
        self.setup, self.executor, self.tick = setup, executor, tick
        self.grouping, self.rows_at_once = grouping, rows_at_once
        self.work = Ledger()

    def spent(self) -> Ledger:
        spent, self.work = self.work, Ledger()
        return spent

    def train(self, population: Population, policies: Sequence[Policy], step: Step) -> Trained:
        n, done = len(population), 0
        if step.anchor is not None and step.k > step.anchor.after:
            step = replace(step, anchor_row=_mean_standing(population))
        start, into = self._shared(population), self._empty(population, n)
        outcomes = dict[int, Outcome]()
        jobs = [
            Train(
                numbers=tuple(group),
                start=start,
                fitness=tuple(population.fitness[group].tolist()),
                optimizer_states=tuple(population.optimizer_states[j] for j in group),
                policies=tuple(policies[j] for j in group),
                step=step,
                into=into,
            )
            for group in self.grouping(policies)
        ]
        with self._wall_clock():
            for job, result in self.executor.run(jobs):
                assert isinstance(job, Train)
                for j, outcome in zip(job.numbers, result.values, strict=True):
                    outcomes[j] = outcome
                    done += 1
                    self.tick("sgd", done, n)
                self.work += result.work
        return self._trained(population, into, policies, [outcomes[j] for j in range(n)], step)

    def _trained(
        self, population: Population, into: Stack, policies: Sequence[Policy], outcomes: Sequence[Outcome], step: Step
    ) -> Trained:
        before = zip(outcomes, policies, population.policies, population.optimizer_states, strict=True)
        goes_on, keeps = continues(self.setup.baggage), self.setup.baggage.keeps
        kept = [
            (policy if outcome.moved or (goes_on and outcome.optimizer_state) else last, outcome.optimizer_state)
            if outcome.moved or goes_on
            else (last, state if keeps else None)
            for outcome, policy, last, state in before
        ]
        trained = replace(
            population,
            rows=into.rows,
            buffers=into.buffers,
            fitness=torch.tensor([outcome.fitness for outcome in outcomes], dtype=torch.float64),
            policies=tuple(policy for policy, _ in kept),
            optimizer_states=tuple(state for _, state in kept),
        )
        return Trained(
            population=trained,
            moved=torch.tensor([outcome.moved for outcome in outcomes], dtype=torch.bool),
            passed=torch.tensor([outcome.end is not None for outcome in outcomes], dtype=torch.bool),
            refused=torch.tensor([outcome.refused for outcome in outcomes], dtype=torch.int64),
            diverged=torch.tensor([outcome.diverged for outcome in outcomes], dtype=torch.bool),
            ends=_ends(trained, outcomes, policies, step.k),
        )

    def evaluate(self, parents: Population, births: Sequence[Birth], elites: int | None = None) -> Scores:
        n, done = len(births), 0
        fitness, complete, begun = torch.empty(n, dtype=torch.float64), torch.ones(n, dtype=torch.bool), {}
        best, stack = sorted(parents.fitness.tolist()), self._shared(parents)

        def jobs() -> Iterator[Job]:
            """Each with the fitnesses known when it is handed out: the cut-off falls while the jobs are run."""
            for these in self._bundles(n):
                yield Evaluate(
                    first=these[0],
                    births=tuple(births[i] for i in these),
                    parents=stack,
                    best=tuple(best[:elites]) if elites is not None else (),
                    elites=elites,
                )

        with self._wall_clock():
            for job, result in self.executor.run(jobs()):
                assert isinstance(job, Evaluate)
                for i, score in enumerate(result.values, start=job.first):
                    fitness[i], complete[i] = score.fitness, score.complete
                    if not score.complete:
                        begun[i] = score.parts
                    insort(best, score.fitness)
                    done += 1
                    self.tick("evolution", done, n)
                self.work += result.work
        return Scores(fitness=fitness, complete=complete, begun=begun)

    def unite(self, parents: Population, births: Sequence[Birth], scores: Scores, chosen: Sequence[int]) -> Population:
        n, stack, into = len(parents), self._shared(parents), self._empty(parents, len(chosen))
        fitness = torch.empty(len(chosen), dtype=torch.float64)
        born = {place: index - n for place, index in enumerate(chosen) if index >= n}
        for place, index in enumerate(chosen):
            if index < n:
                one = slice(index, index + 1)
                into.put([place], Stack(stack.rows[one], {name: all_[one] for name, all_ in stack.buffers.items()}))
                fitness[place] = parents.fitness[index]
        places = list(born)
        jobs = [
            Build(
                births=tuple(births[born[place]] for place in some),
                places=tuple(some),
                parents=stack,
                fitness=tuple(
                    float(scores.fitness[born[place]]) if scores.complete[born[place]] else None for place in some
                ),
                begun=tuple(scores.begun.get(born[place], {}) for place in some),
                into=into,
            )
            for these in self._bundles(len(places))
            for some in [[places[i] for i in these]]
        ]
        with self._wall_clock():
            for job, result in self.executor.run(jobs):
                assert isinstance(job, Build)
                for place, score in zip(job.places, result.values, strict=True):
                    fitness[place] = score.fitness
                self.work += result.work
        mates = {place: births[number].mates for place, number in born.items()}
        origins = [mates[place][0] if place in born else index for place, index in enumerate(chosen)]
        return Population(
            genome=parents.genome,
            rows=into.rows,
            buffers=into.buffers,
            fitness=fitness,
            births=tuple(
                births[born[place]] if place in born else parents.births[origin] for place, origin in enumerate(origins)
            ),
            policies=tuple(parents.policies[origin] for origin in origins),
            optimizer_states=tuple(
                self.setup.baggage.inherit([parents.optimizer_states[mate] for mate in mates[place]])
                if place in born
                else parents.optimizer_states[origin]
                for place, origin in enumerate(origins)
            ),
        )

    def find_ranges(self, one: Population, policies: Sequence[Policy]) -> list[FoundRange]:
        start = Stack(one.rows, one.buffers).take([0]).state(0)
        jobs: list[Job] = [RangeTest(start=start, policy=policy, place=place) for place, policy in enumerate(policies)]
        found = dict[int, FoundRange]()
        with self._wall_clock():
            for job, result in self.executor.run(jobs):
                assert isinstance(job, RangeTest)
                (found[job.place],) = result.values
                self.work += result.work
        return [found[place] for place in range(len(policies))]

    def _bundles(self, n: int) -> Iterator[range]:
        """Numbers below n in bundles that are whole multiples of what a kernel scores at once."""
        if self.executor.workers == 1:
            size = self.rows_at_once
        else:
            jobs = JOBS_PER_WORKER * self.executor.workers
            size = max(1, ceil(n / (jobs * self.rows_at_once))) * self.rows_at_once
        return (range(begin, min(n, begin + size)) for begin in range(0, n, size))

    def _shared(self, population: Population) -> Stack:
        shared = self.executor.shared
        return Stack(shared(population.rows), {name: shared(stacked) for name, stacked in population.buffers.items()})

    def _empty(self, like: Population, n: int) -> Stack:
        empty = self.executor.empty
        buffers = {name: empty(n, *stacked.shape[1:], dtype=stacked.dtype) for name, stacked in like.buffers.items()}
        return Stack(empty(n, like.genome.size, dtype=like.genome.dtype), buffers)

    @contextmanager
    def _wall_clock(self) -> Iterator[None]:
        """Several workers together spend more seconds than have passed: their shares are of the time that has."""
        before, self.work, begun, moved = self.work, Ledger(), perf_counter(), self.executor.bytes_moved
        try:
            yield
        finally:
            before += self.work.within(perf_counter() - begun)
            before.bytes_moved += self.executor.bytes_moved - moved
            self.work = before


def _mean_standing(population: Population) -> Row | None:
    """The mean of where SGD stands, over the individuals that have not diverged."""
    places = [state.place if state is not None else None for state in population.optimizer_states]
    rows = [population.rows[j] if place is None else place[0] for j, place in enumerate(places)]
    alive = [row for row, fitness in zip(rows, population.fitness.tolist(), strict=True) if fitness < inf]
    return torch.stack(alive).mean(dim=0) if alive else None


def _ends(trained: Population, outcomes: Sequence[Outcome], policies: Sequence[Policy], k: int) -> Population:
    """Where trajectories that are elsewhere now would have continued, each as an individual of its own."""
    known = [(j, outcome.end) for j, outcome in enumerate(outcomes) if outcome.end is not None]
    if not known:
        return trained[[]]
    births, ends = [trained.births[j] for j, _ in known], [end for _, end in known]
    stack = Stack.of(ends)
    return replace(
        trained,
        births=tuple(replace(birth, id=f"{birth.id}@{k}", parents=(birth.id,)) for birth in births),
        rows=stack.rows,
        buffers=stack.buffers,
        fitness=torch.tensor([end.fitness for end in ends], dtype=torch.float64),
        policies=tuple(policies[j] for j, _ in known),
        optimizer_states=tuple(end.optimizer_state for end in ends),
    )
