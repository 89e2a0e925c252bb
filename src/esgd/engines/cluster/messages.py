"""Jobs as they travel: with the individuals they need and no others.

An SGD step takes its individuals along. Births are a few numbers each; their parents are on the slices. What comes back
is the result, and the individuals of the next population. So a generation moves O(nodes · μ d) bytes, whatever λ is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from esgd.engines.cluster.serialized import Serialized
from esgd.engines.contract import IndividualSource, Kernel, Stack
from esgd.engines.jobs import Build, Evaluate, Job, Train
from esgd.engines.range_test import RangeTest

ELSEWHERE: Any = None
"""Stands for a population that does not travel."""


@dataclass(frozen=True, eq=False)
class SentIndividuals:
    """The individuals that a job takes along."""

    numbers: tuple[int, ...]
    stack: Stack

    def take(self, numbers: Sequence[int]) -> Stack:
        return self.stack.take([self.numbers.index(number) for number in numbers])


@dataclass(frozen=True, eq=False)
class ReturnedIndividuals:
    """Where individuals are put to be sent."""

    given: list[tuple[tuple[int, ...], Stack]] = field(default_factory=list)

    def put(self, places: Sequence[int], individuals: Stack) -> None:
        self.given.append((tuple(places), individuals))


Answer = tuple[Any, ReturnedIndividuals]
"""The result of a job, and which individuals are put into the next population."""


def serialized_jobs(jobs: Iterable[Job]) -> Serialized:
    """Jobs without the populations they speak of."""
    return Serialized.of([_travelling(job) for job in jobs])


def _travelling(job: Job) -> Job:
    match job:
        case Train():
            return replace(job, start=SentIndividuals(job.numbers, job.start.take(job.numbers)), into=ELSEWHERE)
        case Evaluate():
            return replace(job, parents=ELSEWHERE)
        case Build():
            return replace(job, parents=ELSEWHERE, into=ELSEWHERE)
        case RangeTest():
            return job


def run_sent_job(job: Job, kernel: Kernel, parents: IndividualSource) -> Answer:
    """Do a job that has travelled."""
    returned = ReturnedIndividuals()
    match job:
        case Train():
            return replace(job, into=returned).run(kernel), returned
        case Evaluate():
            return replace(job, parents=parents).run(kernel), returned
        case Build():
            return replace(job, parents=parents, into=returned).run(kernel), returned
        case RangeTest():
            return job.run(kernel), returned


def store_individuals(job: Job, answer: Answer) -> Any:
    """Put all individuals in their places; returns the result."""
    result, returned = answer
    for places, individuals in returned.given:
        assert isinstance(job, Train | Build), "other jobs keep no individuals"
        job.into.put(places, individuals)
    return result
