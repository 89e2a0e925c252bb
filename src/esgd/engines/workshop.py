"""The workshop that all engines share: it cuts a generation into jobs, hands them out, and puts the results together.

Engines differ in who does the jobs (`Hands`) and in how many individuals sit at one bench (`Grouping`); never in what
comes out.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from math import ceil
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from esgd.engines.computing import torch_threads
from esgd.engines.jobs import Bench, Build, Evaluate, Job, Space, Train
from esgd.engines.stint import End
from esgd.ledger import Work
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import Rules, Scores, Step, Tick, Trained

Grouping = Callable[[Sequence[Policy]], list[list[int]]]
"""Which individuals train together, decided from their policies alone: the number of hands must not matter."""

BUNDLES = 8
"""Evaluations are handed out in so many bundles to each hand: few enough to be cheap, enough to balance."""


class Hands(Protocol):
    """Who does the jobs."""

    @property
    def count(self) -> int:
        """How many jobs are done at the same time."""
        ...

    @property
    def moved(self) -> int:
        """Bytes of individuals that have gone to other machines and come back, so far."""
        ...

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Memory that every hand can write into."""
        ...

    def within_reach(self, tensor: Tensor) -> Tensor:
        """The tensor, where every hand can read it; its memory may be moved there."""
        ...

    def do(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Do the jobs and yield each with its result as it is done; the next job is asked for when a hand is free."""
        ...


class Here:
    """One pair of hands, in this process."""

    count, moved = 1, 0

    def __init__(self, bench: Bench, threads: int | None) -> None:
        self.bench, self.threads = bench, threads

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def within_reach(self, tensor: Tensor) -> Tensor:
        return tensor

    def do(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        for job in jobs:
            with torch_threads(self.threads):
                result = job.run(self.bench)
            yield job, result


class HandedOut:
    """A `Workshop` whose work is done by hands."""

    def __init__(self, rules: Rules, hands: Hands, *, grouping: Grouping, seats: int, tick: Tick) -> None:
        self.rules, self.hands, self.grouping, self.seats, self.tick = rules, hands, grouping, seats, tick
        self.work = Work()

    def spent(self) -> Work:
        spent, self.work = self.work, Work()
        return spent

    def train(self, population: Population, policies: Sequence[Policy], step: Step) -> Trained:
        n, keeps, done = len(population), self.rules.baggage.keeps, 0
        start, into = self._reachable(population), self._space(population, n)
        fitness = population.fitness.clone()
        accepted, baggage = list(population.policies), list(population.baggage)
        moved, diverged = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
        refused, ends = torch.zeros(n, dtype=torch.int64), dict[int, End]()
        jobs = [
            Train(
                numbers=tuple(group),
                start=start,
                fitness=tuple(population.fitness[group].tolist()),
                baggage=tuple(population.baggage[j] for j in group),
                policies=tuple(policies[j] for j in group),
                step=step,
                into=into,
            )
            for group in self.grouping(policies)
        ]
        with self._wall_clock():
            for job, account in self.hands.do(jobs):
                assert isinstance(job, Train)
                for i, j in enumerate(job.numbers):
                    fitness[j], moved[j] = account.fitness[i], account.moved[i]
                    refused[j], diverged[j] = account.refused[i], account.diverged[i]
                    accepted[j] = policies[j] if moved[j] else accepted[j]
                    if moved[j] or not keeps:
                        baggage[j] = account.baggage[i]
                    if (end := account.ends[i]) is not None:
                        ends[j] = end
                    done += 1
                    self.tick("sgd", done, n)
                self.work += account.work
        trained = replace(
            population,
            rows=into.rows,
            buffers=into.buffers,
            fitness=fitness,
            policies=tuple(accepted),
            baggage=tuple(baggage),
        )
        left = [_left(trained, j, policies[j], ends[j], step.k) for j in sorted(ends)]
        return Trained(
            population=trained,
            moved=moved,
            refused=refused,
            diverged=diverged,
            ends=reduce(Population.join, left, trained[[]]),
        )

    def evaluate(self, parents: Population, births: Sequence[Birth], elites: int | None = None) -> Scores:
        n, done = len(births), 0
        fitness, complete, begun = torch.empty(n, dtype=torch.float64), torch.ones(n, dtype=torch.bool), {}
        best, space = sorted(parents.fitness.tolist()), self._reachable(parents)

        def jobs() -> Iterator[Job]:
            """Each with the fitnesses known by the time it is handed out: the cut-off falls as the work goes on."""
            for these in self._bundles(n):
                yield Evaluate(
                    first=these[0],
                    births=tuple(births[i] for i in these),
                    parents=space,
                    best=tuple(best[:elites]) if elites is not None else (),
                    elites=elites,
                )

        with self._wall_clock():
            for job, scored in self.hands.do(jobs()):
                assert isinstance(job, Evaluate)
                for i, score in enumerate(scored.scores, start=job.first):
                    fitness[i], complete[i] = score.fitness, score.complete
                    if not score.complete:
                        begun[i] = score.parts
                    insort(best, score.fitness)
                    done += 1
                    self.tick("evolution", done, n)
                self.work += scored.work
        return Scores(fitness=fitness, complete=complete, begun=begun)

    def unite(self, parents: Population, births: Sequence[Birth], scores: Scores, chosen: Sequence[int]) -> Population:
        n, space, into = len(parents), self._reachable(parents), self._space(parents, len(chosen))
        fitness = torch.empty(len(chosen), dtype=torch.float64)
        born = {place: index - n for place, index in enumerate(chosen) if index >= n}
        for place, index in enumerate(chosen):
            if index < n:
                own = {name: stacked[index : index + 1] for name, stacked in space.buffers.items()}
                into.put([place], space.rows[index : index + 1], own)
                fitness[place] = parents.fitness[index]
        places = list(born)
        jobs = [
            Build(
                births=tuple(births[born[place]] for place in some),
                places=tuple(some),
                parents=space,
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
            for job, scored in self.hands.do(jobs):
                assert isinstance(job, Build)
                for place, score in zip(job.places, scored.scores, strict=True):
                    fitness[place] = score.fitness
                self.work += scored.work
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
            baggage=tuple(
                self.rules.baggage.inherit([parents.baggage[mate] for mate in mates[place]])
                if place in born
                else parents.baggage[origin]
                for place, origin in enumerate(origins)
            ),
        )

    def _bundles(self, n: int) -> Iterator[range]:
        """Numbers below n in bundles that are whole multiples of a bench's seats."""
        if self.hands.count == 1:
            size = self.seats
        else:
            size = max(1, ceil(n / (BUNDLES * self.hands.count * self.seats))) * self.seats
        return (range(begin, min(n, begin + size)) for begin in range(0, n, size))

    def _reachable(self, population: Population) -> Space:
        reach = self.hands.within_reach
        return Space(reach(population.rows), {name: reach(stacked) for name, stacked in population.buffers.items()})

    def _space(self, like: Population, n: int) -> Space:
        empty = self.hands.empty
        buffers = {name: empty(n, *stacked.shape[1:], dtype=stacked.dtype) for name, stacked in like.buffers.items()}
        return Space(empty(n, like.genome.size, dtype=like.genome.dtype), buffers)

    @contextmanager
    def _wall_clock(self) -> Iterator[None]:
        """Several hands together spend more seconds than have passed: their shares are of the time that has."""
        before, self.work, begun, moved = self.work, Work(), perf_counter(), self.hands.moved
        try:
            yield
        finally:
            before += self.work.within(perf_counter() - begun)
            before.bytes_moved += self.hands.moved - moved
            self.work = before


def _left(population: Population, j: int, policy: Policy, end: End, k: int) -> Population:
    """Where an individual that backed off would have gone on from: somebody else from here on."""
    birth = population.births[j]
    return replace(
        population,
        births=(replace(birth, id=f"{birth.id}@{k}", parents=(birth.id,)),),
        rows=end.row[None],
        buffers={name: value[None] for name, value in end.buffers.items()},
        fitness=torch.tensor([end.fitness], dtype=torch.float64),
        policies=(policy,),
        baggage=(end.baggage,),
    )
