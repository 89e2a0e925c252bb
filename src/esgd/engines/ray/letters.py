"""Jobs as they travel: with the individuals they need and no others.

An SGD step takes its individuals along. Births are a few numbers each; their parents are on the shelf. What comes back
is the result, and whoever is put into the next population. So a generation moves O(nodes · μ d) bytes, whatever λ is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from esgd.engines.jobs import Bench, Build, Evaluate, Job, Source, Space, Train
from esgd.engines.ray.parcel import Parcel
from esgd.genome import Buffers

ELSEWHERE: Any = None
"""Stands for a population that does not travel."""


@dataclass(frozen=True, eq=False)
class Along:
    """The individuals that a job takes along."""

    numbers: tuple[int, ...]
    space: Space

    def some(self, numbers: Sequence[int]) -> Space:
        return self.space.some([self.numbers.index(number) for number in numbers])


@dataclass(frozen=True, eq=False)
class Outbox:
    """Where individuals are put to be sent."""

    given: list[tuple[tuple[int, ...], Tensor, Buffers]] = field(default_factory=list)

    def put(self, places: Sequence[int], rows: Float[Tensor, "m d"], buffers: Buffers) -> None:
        self.given.append((tuple(places), rows, buffers))


Answer = tuple[Any, Outbox]
"""The result of a job, and who is to be put into the next population."""


def letter(jobs: Iterable[Job]) -> Parcel:
    """Jobs without the populations they speak of."""
    return Parcel.of([_travelling(job) for job in jobs])


def _travelling(job: Job) -> Job:
    match job:
        case Train():
            return replace(job, start=Along(job.numbers, job.start.some(job.numbers)), into=ELSEWHERE)
        case Evaluate():
            return replace(job, parents=ELSEWHERE)
        case Build():
            return replace(job, parents=ELSEWHERE, into=ELSEWHERE)


def done(job: Job, bench: Bench, parents: Source) -> Answer:
    """Do a job that has travelled."""
    outbox = Outbox()
    match job:
        case Train():
            return replace(job, into=outbox).run(bench), outbox
        case Evaluate():
            return replace(job, parents=parents).run(bench), outbox
        case Build():
            return replace(job, parents=parents, into=outbox).run(bench), outbox


def settled(job: Job, answer: Answer) -> Any:
    """Put everybody in their places; returns the result."""
    result, outbox = answer
    for places, rows, buffers in outbox.given:
        assert not isinstance(job, Evaluate), "offspring are dropped when they have been evaluated"
        job.into.put(places, rows, buffers)
    return result
