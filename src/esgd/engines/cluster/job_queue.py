"""The queue of jobs: waiting, running, done, lost; and how long jobs take."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Sequence
from math import inf
from statistics import median

from esgd.engines.jobs import Job, Train
from esgd.engines.range_test import RangeTest

BRIEF = 0.05
"""Seconds that the jobs of a message should last at least, if there are jobs enough: to send it takes time, too."""

FEW, MANY = 3, 100
"""Of so many jobs of a kind the time must be known before it is usual; the last so many are remembered."""


class JobDurations:
    """Seconds that a job of some kind takes for each individual it is about."""

    def __init__(self) -> None:
        self._seconds = defaultdict[type[Job], deque[float]](lambda: deque(maxlen=MANY))

    def note(self, jobs: Sequence[Job], seconds: float) -> None:
        self._seconds[type(jobs[0])].append(seconds / _individuals(jobs))

    def usual(self, jobs: Sequence[Job]) -> float:
        """Seconds that these, all of one kind, should take; inf as long as that is not known."""
        known = self._seconds[type(jobs[0])]
        return median(known) * _individuals(jobs) if len(known) >= FEW else inf


class JobQueue:
    """Jobs, each to be done once, however often it is begun."""

    def __init__(self, jobs: Iterable[Job], durations: JobDurations) -> None:
        self._new, self._again, self._durations = iter(jobs), deque[Job](), durations
        self._more, self._open = True, set[Job]()
        self.losses = defaultdict[Job, list[str]](list)  # the nodes it was lost on, one after another

    @property
    def is_done(self) -> bool:
        return not (self._more or self._again or self._open)

    def take(self) -> list[Job]:
        """The next jobs for somebody: one, or several short ones. Whatever was lost before goes alone, so that a job
        that is to blame for it is found out."""
        if self._again:
            return [self._again.popleft()]
        taken = list[Job]()
        while self._more and (not taken or self._durations.usual(taken) < BRIEF):
            job = next(self._new, None)
            if job is None:
                self._more = False
            else:
                taken.append(job)
        self._open.update(taken)
        return taken

    def open(self, jobs: Iterable[Job]) -> list[Job]:
        """Those of these that are still wanted."""
        return [job for job in jobs if job in self._open]

    def close(self, job: Job) -> None:
        self._open.remove(job)

    def retry_lost(self, jobs: Sequence[Job], node: str, done_elsewhere: Container[Job]) -> None:
        """A worker on that node will not finish these; those that no other worker has begun are done again."""
        for job in jobs:
            self.losses[job].append(node)
        self._again.extend(job for job in jobs if job not in done_elsewhere)


def _individuals(jobs: Sequence[Job]) -> int:
    return sum(
        1 if isinstance(job, RangeTest) else len(job.numbers if isinstance(job, Train) else job.births) for job in jobs
    )
