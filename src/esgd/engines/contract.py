"""What kernels and executors promise, and the values that pass between them.

A *kernel* trains and scores networks in one process: one after another, or many in one batched computation. An
*executor* runs jobs: in this process, in other processes, or on a cluster. Any executor can run any kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.genome import Buffers, Row
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import OptimizerState
from esgd.protocols import Setup, Step
from esgd.randomness import Seeds

if TYPE_CHECKING:
    from esgd.engines.computing import Computing
    from esgd.engines.jobs import Job

T = TypeVar("T")

Parts = Mapping[int, tuple[float, int, float]]
"""Parts of the fitness that have been evaluated: number → summed loss, samples, and what they count as in the mean."""


@dataclass(frozen=True, eq=False)
class NetworkState:
    """One individual inside an engine; what is not known or not kept is NaN or None."""

    row: Row
    buffers: Buffers
    fitness: float = nan
    optimizer_state: OptimizerState | None = None


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows and stacked buffers of n individuals, to read from or to write into."""

    rows: Float[Tensor, "n d"]
    buffers: Buffers

    def take(self, numbers: Sequence[int]) -> Stack:
        """Copies of these individuals, in this order."""
        chosen = list(numbers)
        return Stack(self.rows[chosen], {name: stacked[chosen] for name, stacked in self.buffers.items()})

    def put(self, places: Sequence[int], individuals: Stack) -> None:
        """Write individuals into these places."""
        for i, place in enumerate(places):
            self.rows[place] = individuals.rows[i]
            for name, stacked in individuals.buffers.items():
                self.buffers[name][place] = stacked[i]

    def state(self, i: int) -> NetworkState:
        """One individual (views)."""
        return NetworkState(self.rows[i], {name: stacked[i] for name, stacked in self.buffers.items()})

    @staticmethod
    def of(states: Sequence[NetworkState]) -> Stack:
        """Copies of these individuals."""
        names = states[0].buffers
        return Stack(
            torch.stack([state.row for state in states]),
            {name: torch.stack([state.buffers[name] for state in states]) for name in names},
        )


class IndividualSource(Protocol):
    """Where individuals are read from, by their numbers."""

    def take(self, numbers: Sequence[int]) -> Stack: ...


class IndividualSink(Protocol):
    """Where individuals are written to."""

    def put(self, places: Sequence[int], individuals: Stack) -> None: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What an SGD step did to one individual; see `esgd.protocols.Trained`."""

    fitness: float
    moved: bool
    refused: int
    diverged: bool
    optimizer_state: OptimizerState | None
    end: NetworkState | None


@dataclass(frozen=True, slots=True)
class Score:
    """A fitness, or the fact that it exceeds the cut-off, with the parts evaluated until then.

    `samples` were evaluated for this score; `saved` were not, and are not needed. `buffers` hold the statistics that
    the fitness was taken with.
    """

    fitness: float
    complete: bool
    samples: int
    saved: int
    parts: Parts
    buffers: Buffers = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class JobResult(Generic[T]):
    """What came of each individual or birth of a job, in their order, and what it took."""

    values: Sequence[T]
    work: Ledger


class Kernel(Protocol):
    """Trains and scores networks in this process; births are scored `rows_at_once` at a time."""

    @property
    def setup(self) -> Setup: ...

    @property
    def rows_at_once(self) -> int: ...

    @property
    def computing(self) -> Computing: ...

    def train(
        self, starts: Sequence[NetworkState], policies: Sequence[Policy], seeds: Sequence[Seeds], step: Step
    ) -> tuple[Stack, list[Outcome], Ledger]:
        """One SGD step for each: where it left them, what it did, and what it took."""
        ...

    def score(self, states: Sequence[NetworkState], cutoff: float, begun: Sequence[Parts]) -> list[Score]:
        """The fitness of each, continued from the parts in `begun`; one above `cutoff` may be left incomplete."""
        ...

    def calibrate(self, states: Sequence[NetworkState]) -> list[tuple[Buffers, int]]:
        """The buffers of each as the fitness would see them, and the samples that took."""
        ...

    def forget_order(self) -> None:
        """Begin a phase of work whose ledger does not depend on what was done before."""
        ...


class Executor(Protocol):
    """Runs jobs."""

    @property
    def workers(self) -> int:
        """How many jobs run at the same time."""
        ...

    @property
    def bytes_moved(self) -> int:
        """Bytes of individuals that were sent to other machines and back, so far."""
        ...

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Memory that every worker can write into."""
        ...

    def shared(self, tensor: Tensor) -> Tensor:
        """The tensor, where every worker can read it; its memory may be moved there."""
        ...

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Run the jobs and yield each with its result as it is done; the next job is taken when a worker is free."""
        ...


def in_groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into pieces of at most `size`.

    >>> list(in_groups("abcde", 2))
    ['ab', 'cd', 'e']
    """
    return (items[begin : begin + size] for begin in range(0, len(items), size))
