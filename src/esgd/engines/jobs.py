"""The pieces that an engine's work is cut into, and the bench they are done at.

A job is a value: it says everything about a piece of work, so it can be done in this process, in another one or on
another machine, now or again after somebody died. Rows go straight to where they belong (`into`); the rest comes back.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar

from jaxtyping import Float
from torch import Tensor

from esgd.engines.seat import Begun, Born, Score, samples_in
from esgd.engines.stint import Account, Stint
from esgd.engines.walk import Start
from esgd.genome import Buffers
from esgd.ledger import Work
from esgd.policies import Policy
from esgd.population import Birth, OptimizerState
from esgd.protocols import Rules, Step

T = TypeVar("T")


class Bench(Protocol):
    """Where individuals are trained and scored; births are examined `seats` at a time."""

    @property
    def rules(self) -> Rules: ...

    @property
    def seats(self) -> int: ...

    def train(self, starts: Sequence[Start], step: Step) -> Stint:
        """One SGD step for each."""
        ...

    def scores(self, born: Sequence[Born], cutoff: float, begun: Sequence[Begun]) -> list[Score]:
        """The fitness of each, going on from what is begun; one above `cutoff` may be left unfinished."""
        ...

    def calibrated(self, born: Sequence[Born]) -> list[tuple[Buffers, int]]:
        """The buffers of each as the fitness would see them, and the samples that took."""
        ...

    def forget_order(self) -> None:
        """Start a phase of work whose ledger does not depend on what was done before."""
        ...


class Source(Protocol):
    """Where individuals can be had by their numbers."""

    def some(self, numbers: Sequence[int]) -> Space:
        """Copies of these, in this order."""
        ...


class Sink(Protocol):
    """Where individuals can be put."""

    def put(self, places: Sequence[int], rows: Float[Tensor, "m d"], buffers: Buffers) -> None: ...


@dataclass(frozen=True, eq=False)
class Space:
    """Individuals as memory: rows and stacked buffers of a whole population, to read from or to write into."""

    rows: Float[Tensor, "n d"]
    buffers: Buffers

    def some(self, numbers: Sequence[int]) -> Space:
        chosen = list(numbers)
        return Space(self.rows[chosen], {name: stacked[chosen] for name, stacked in self.buffers.items()})

    def put(self, places: Sequence[int], rows: Float[Tensor, "m d"], buffers: Buffers) -> None:
        for i, place in enumerate(places):
            self.rows[place] = rows[i]
            for name, stacked in buffers.items():
                self.buffers[name][place] = stacked[i]


@dataclass(frozen=True, eq=False, kw_only=True)
class Train:
    """Train individuals `numbers`, all of them at once if the bench can, and put them into the same places."""

    numbers: tuple[int, ...]
    start: Source
    fitness: tuple[float, ...]
    baggage: tuple[OptimizerState | None, ...]
    policies: tuple[Policy, ...]
    step: Step
    into: Sink

    def run(self, bench: Bench) -> Account:
        bench.forget_order()
        given = self.start.some(self.numbers)
        starts = [
            Start(
                row=given.rows[i],
                buffers={name: stacked[i] for name, stacked in given.buffers.items()},
                fitness=self.fitness[i],
                baggage=self.baggage[i],
                policy=self.policies[i],
                seeds=bench.rules.seeds.at("sgd", self.step.k, j),
            )
            for i, j in enumerate(self.numbers)
        ]
        stint = bench.train(starts, self.step)
        self.into.put(self.numbers, stint.rows, stint.buffers)
        return stint.account

    def __str__(self) -> str:
        who = ", ".join(str(j) for j in self.numbers)
        return f"the SGD step of individual {who} in generation {self.step.k}"


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of a job's births, in order, and what they took."""

    scores: Sequence[Score]
    work: Work


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluate:
    """Build births, take their fitness, drop them. `best` are the fitnesses known so far; `elites` of them count."""

    first: int
    births: tuple[Birth, ...]
    parents: Source
    best: tuple[float, ...]
    elites: int | None

    def run(self, bench: Bench) -> Scored:
        if self.first == 0:
            bench.forget_order()
        found, work, best = list[Score](), Work(), list(self.best)
        for births in in_groups(self.births, bench.seats):
            with work.clock("evolution"):
                born = [conceive(bench.rules, self.parents, birth) for birth in births]
            cutoff = best[self.elites - 1] if self.elites is not None and self.elites <= len(best) else inf
            with work.clock("fitness"):
                scores = bench.scores(born, cutoff, [{}] * len(born))
            for score in scores:
                insort(best, score.fitness)
                work.fitness_evolution += score.samples
                work.fitness_saved += score.saved
                found.append(Score(score.fitness, score.complete, 0, 0, {} if score.complete else score.parts))
        return Scored(found, work)

    def __str__(self) -> str:
        return f"the fitness of offspring {self.births[0].id} to {self.births[-1].id}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Build:
    """Build surviving births again into `places`, and finish their evaluation where it was aborted.

    `fitness` is None where it is not known; then `begun` are the parts to go on from.
    """

    births: tuple[Birth, ...]
    places: tuple[int, ...]
    parents: Source
    fitness: tuple[float | None, ...]
    begun: tuple[Begun, ...]
    into: Sink

    def run(self, bench: Bench) -> Scored:
        found, work = list[Score](), Work()
        for these in in_groups(range(len(self.births)), bench.seats):
            with work.clock("evolution"):
                born = [conceive(bench.rules, self.parents, self.births[i]) for i in these]
            with work.clock("fitness"):
                scores = self._finished(bench, dict(zip(these, born, strict=True)), work)
            for i, each in zip(these, born, strict=True):
                buffers = {name: value[None] for name, value in scores[i].buffers.items()}
                self.into.put([self.places[i]], each.row[None], buffers)
                found.append(Score(scores[i].fitness, True, 0, 0, {}))
        return Scored(found, work)

    def _finished(self, bench: Bench, born: dict[int, Born], work: Work) -> dict[int, Score]:
        """Complete scores, with the buffers that belong to them."""
        scores = dict[int, Score]()
        known = {i: fitness for i in born if (fitness := self.fitness[i]) is not None}
        unknown = [i for i in born if i not in known]
        for i, (buffers, samples) in zip(known, bench.calibrated([born[i] for i in known]), strict=True):
            scores[i] = Score(known[i], True, samples, 0, {}, buffers)
            work.fitness_evolution += samples
        begun = [self.begun[i] for i in unknown]
        for i, score in zip(unknown, bench.scores([born[i] for i in unknown], inf, begun), strict=True):
            scores[i] = score
            work.fitness_evolution += score.samples
            if self.begun[i]:  # its saving was counted too early: it is needed after all
                work.fitness_saved -= samples_in(score.parts) - samples_in(self.begun[i])
        return scores

    def __str__(self) -> str:
        return f"building the survivors {self.births[0].id} to {self.births[-1].id}"


def conceive(rules: Rules, parents: Source, birth: Birth) -> Born:
    """Build an offspring: recombination, then mutation (Eq. 12); buffers by their rule."""
    mates = parents.some(birth.mates)
    row = rules.recombination(mates.rows)
    if birth.sigma:
        row = rules.mutation(row, birth.sigma, rules.seeds("noise", birth.id), rules.genome)
    return Born(row, rules.buffers(mates.buffers))


def in_groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into pieces of at most `size`.

    >>> list(in_groups("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[begin : begin + size] for begin in range(0, len(items), size))


Job = Train | Evaluate | Build
