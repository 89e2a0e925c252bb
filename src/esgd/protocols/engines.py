"""What an engine must be, and what it is given and gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd.genome import Genome, Row
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols.operators import (
    BackOff,
    Baggage,
    BufferRule,
    Mutation,
    Pull,
    Recombination,
    takes_layout,
)
from esgd.protocols.tasks import Task
from esgd.randomness import Seeds
from esgd.ranges import FoundRange


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What an engine must know for a whole run; shipped to every worker once."""

    task: Task
    genome: Genome
    seeds: Seeds
    recombination: Recombination
    mutation: Mutation
    buffers: BufferRule
    baggage: Baggage
    begun: float = field(default_factory=perf_counter)
    """When the run began, by the clock of the process that made this."""

    @cached_property
    def recombines_by_layout(self) -> bool:
        """Whether the recombination is handed weights and genome."""
        return takes_layout(self.recombination)


@dataclass(frozen=True)
class Load:
    """The work of a run: so many individuals, each for so many epochs of SGD, and the loads that come `later`, where
    the population has another size."""

    population: int
    epochs: float
    later: tuple[Load, ...] = ()

    @property
    def stages(self) -> tuple[Load, ...]:
        """This load and all that come later."""
        return (self, *(stage for each in self.later for stage in each.stages))

    @property
    def largest(self) -> int:
        """The largest population."""
        return max(stage.population for stage in self.stages)

    @property
    def individual_epochs(self) -> float:
        """Epochs of SGD, of all individuals together.

        >>> Load(9, 2.0, later=(Load(3, 4.0),)).individual_epochs
        30.0
        """
        return sum(stage.population * stage.epochs for stage in self.stages)

    def scaled(self, factor: float) -> Load:
        """The same populations with so many times the epochs."""
        return Load(self.population, factor * self.epochs, tuple(each.scaled(factor) for each in self.later))


@dataclass(frozen=True, kw_only=True)
class Step:
    """One SGD step of a generation, as an engine sees it."""

    k: int
    epochs: float
    backoff: BackOff
    before: float = 0
    total: float = 1
    keep_ends: bool = False
    keep_every_end: bool = False
    anchor: Pull | None = None
    anchor_row: Row | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Trained:
    """A population after its SGD step.

    | field      | shape | meaning                                                                |
    |------------|-------|------------------------------------------------------------------------|
    | `moved`    | (n,)  | the individual is not where it began                                   |
    | `refused`  | (n,)  | updates that were backed off                                           |
    | `diverged` | (n,)  | a measured fitness was NaN or inf                                      |
    | `passed`   | (n,)  | the individual kept another place than its end, which is in `ends`     |
    | `ends`     |       | where those that did not move would have gone, if a strategy wants it  |
    """

    population: Population
    moved: Bool[Tensor, " n"]
    passed: Bool[Tensor, " n"]
    refused: Int[Tensor, " n"]
    diverged: Bool[Tensor, " n"]
    ends: Population

    def then(self, population: Population) -> Trained:
        """The same after an evolution step: a survivor starts the next one from where it is."""
        n = len(population)
        return Trained(
            population=population,
            moved=torch.ones(n, dtype=torch.bool),
            passed=torch.zeros(n, dtype=torch.bool),
            refused=torch.zeros(n, dtype=torch.int64),
            diverged=torch.zeros(n, dtype=torch.bool),
            ends=population[[]],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """Fitness of births. Where `complete` is False the evaluation was aborted: not an elite, fitness +inf."""

    fitness: Float[Tensor, " n"]
    complete: Bool[Tensor, " n"]
    begun: Mapping[int, Any] = field(default_factory=dict)
    """What is known of aborted evaluations, by number of the birth; an engine continues from it."""

    @staticmethod
    def unknown(n: int) -> Scores:
        """The scores of n births that have not been evaluated yet."""
        return Scores(
            fitness=torch.full((n,), torch.inf, dtype=torch.float64),
            complete=torch.zeros(n, dtype=torch.bool),
        )


class Session(Protocol):
    """An engine at work on one run."""

    def train(self, population: Population, policies: Sequence[Policy], step: Step) -> Trained:
        """Train every individual with its policy for one SGD step."""
        ...

    def evaluate(self, parents: Population, births: Sequence[Birth], elites: int | None = None) -> Scores:
        """Build each birth, take its fitness, drop it. With `elites`, stop early on those that cannot be elite."""
        ...

    def unite(self, parents: Population, births: Sequence[Birth], scores: Scores, chosen: Sequence[int]) -> Population:
        """The next population: indices below len(parents) are parents, the others are births, built again."""
        ...

    def spent(self) -> Ledger:
        """Samples and seconds since this was last asked."""
        ...


@runtime_checkable
class FindsRanges(Protocol):
    """A session that can test learning rates. One that cannot leaves the usual ranges."""

    def find_ranges(self, one: Population, policies: Sequence[Policy]) -> list[FoundRange]:
        """The range of each policy, whose own rate is not used, for the first individual; nothing is kept of it."""
        ...


@runtime_checkable
class Start(Protocol):
    """Make the initial population Ψ^(0); `common` says whether its members share one origin."""

    @property
    def common(self) -> bool: ...

    def __call__(self, task: Task, genome: Genome, session: Session, size: int, seeds: Seeds) -> Population: ...


Tick = Callable[[str, int, int], None]
"""Progress: a phase, how many individuals are done, and of how many."""


@runtime_checkable
class Engine(Protocol):
    """Where the work is done: a value that opens a `Session` for a run and closes it after."""

    def open(self, setup: Setup, tick: Tick) -> AbstractContextManager[Session]: ...
