"""The troupe: actors that take jobs from an agenda. Actors and whole nodes come and go; the jobs get done."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import ray
import torch
from ray.exceptions import RayError
from torch import Tensor

from esgd.engines.failure import Failure
from esgd.engines.jobs import Build, Evaluate, Job, Space, Train
from esgd.engines.pickling import LARGE
from esgd.engines.ray.actor import Actor
from esgd.engines.ray.agenda import Agenda, Pace
from esgd.engines.ray.cluster import Asked, check_is_there, living
from esgd.engines.ray.letters import letter, settled
from esgd.engines.ray.losses import LOSSES, cause, failed_itself, hopeless, is_a_loss
from esgd.engines.ray.parcel import Parcel
from esgd.engines.ray.shelf import EMPTY, Shelf, Stock
from esgd.engines.warning import warn
from esgd.errors import EngineError

TURN = 1.0
"""Seconds after which the driver looks up if nobody answers: is somebody late, has the cluster changed, is it there?"""

CENSUS = 5.0
"""Seconds between two looks at how many workers there should be."""

LONGEST = 60.0
"""Seconds after which at the latest another worker is tried where others could not get ready."""


@dataclass(eq=False)
class Member:
    """An actor. It arrives at a node, then gets ready, then has jobs or is idle."""

    handle: Any
    awaited: Any  # reference of its next answer; None if it is idle
    node: str = ""
    ready: bool = False
    jobs: Sequence[Job] = ()
    since: float = field(default_factory=monotonic)


class Troupe:
    """`Hands` that are actors of a Ray cluster."""

    def __init__(
        self, parcel: Parcel, asked: Asked, *, device: str, size: Callable[[], int], patience: float, slow: float
    ) -> None:
        # What is small goes along with every call; what is large lies in the store, once for every node.
        welcome = ray.put(parcel) if parcel.nbytes > LARGE else parcel
        self._welcome: tuple[Any, ...] = welcome, device, str(Path.cwd()), list(sys.path)
        self._asked, self._size, self._patience, self._slow = asked, size, patience, slow
        self._actor: Any = ray.remote(**asked.options)(Actor)
        self._members, self._pace = list[Member](), Pace()
        self._stock: Stock | None = None
        self._false_starts, self._reason = 0, ""
        self._counted = self._seen = self._not_before = monotonic()
        self.count, self.moved = max(1, size()), 0
        self._recruit()  # they get ready while other things are done

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def within_reach(self, tensor: Tensor) -> Tensor:
        return tensor

    def do(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        agenda = Agenda(jobs, self._pace)
        self._seen = monotonic()
        try:
            while True:
                self._look_around()
                self._hand_out(agenda)
                if agenda.is_done:
                    return
                for member in self._answering():
                    yield from self._results(member, agenda)
        finally:
            for member in self._members:
                if member.jobs:  # whatever it still does, nobody waits for it
                    member.jobs, member.since = (), monotonic()

    def close(self) -> None:
        """Nothing of the run stays on the cluster, even if somebody still holds the exception that ended it."""
        for member in list(self._members):
            self._dismiss(member)
        self._welcome, self._stock = (), None

    def _look_around(self) -> None:
        """Whether there are as many members as there should be, and anybody at all."""
        check_is_there()
        now = monotonic()
        if now - self._counted >= CENSUS:
            self._counted, self.count = now, max(1, self._size())
        for member in self._members[::-1]:
            surplus = not member.node and len(self._members) > self.count  # there is no room for it any more
            forgotten = member.ready and member.awaited is not None and not member.jobs  # others did what it is at
            if surplus or (forgotten and now - member.since > self._patience):
                self._dismiss(member)
        self._recruit()
        if any(member.node for member in self._members):
            self._seen = now
        elif now - self._seen > self._patience:
            raise self._asked.unmet(self._patience, self._reason)

    def _recruit(self) -> None:
        while len(self._members) < self.count and monotonic() >= self._not_before:
            handle = self._actor.remote()
            self._members.append(Member(handle, handle.arrive.remote()))

    def _dismiss(self, member: Member) -> None:
        self._members.remove(member)
        if ray.is_initialized():  # or the call would start another one
            ray.kill(member.handle)

    def _hand_out(self, agenda: Agenda) -> None:
        """Something for everybody who is idle; when nothing is left, what others are late with."""
        late: list[list[Job]] | None = None
        for member in [member for member in self._members if member.awaited is None]:
            jobs = agenda.take()
            if not jobs:
                late = self._late(agenda) if late is None else late
                if not late:
                    return
                jobs = late.pop()
            births = [job for job in jobs if not isinstance(job, Train)]
            shelf, parcel = self._shelf(births, member.node) if births else EMPTY, letter(jobs)
            self.moved += parcel.nbytes
            member.jobs, member.since, member.awaited = jobs, monotonic(), member.handle.work.remote(parcel, shelf)

    def _late(self, agenda: Agenda) -> list[list[Job]]:
        """Jobs that take `slow` times as long as usual and are not being done twice yet, the oldest last."""
        now, begun = monotonic(), Counter(job for member in self._members for job in member.jobs)
        return [
            jobs
            for member in sorted(self._members, key=lambda member: -member.since)
            if (jobs := agenda.open(member.jobs))
            and begun[jobs[0]] == 1
            and now - member.since > self._slow * self._pace.usual(member.jobs)
        ]

    def _shelf(self, jobs: Sequence[Evaluate | Build], node: str) -> Shelf:
        """Where the parents of these births are: all of them are of one population, most often the last one's."""
        space = jobs[0].parents
        assert isinstance(space, Space), "jobs that have not travelled have populations in memory"
        if self._stock is None or not self._stock.is_of(space):
            self._stock = Stock(space)
        mates = (mate for job in jobs for birth in job.births for mate in birth.mates)
        shelf, new = self._stock.shelf(space, mates, node)
        self.moved += new
        return shelf

    def _answering(self) -> list[Member]:
        """Those who have answered; waits for the first, but no longer than a turn."""
        awaited = {member.awaited: member for member in self._members if member.awaited is not None}
        if not awaited:  # nobody has been hired again yet
            sleep(TURN)
            return []
        some, _ = ray.wait(list(awaited), timeout=TURN)
        if some:  # others may have answered as well, and to ask for each of them alone would take long
            some, _ = ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        return [awaited[reference] for reference in some]

    def _results(self, member: Member, agenda: Agenda) -> Iterator[tuple[Job, Any]]:
        """What a member has done; nothing if it has only arrived, got ready or been lost, or if nobody waits for it."""
        awaited, jobs = member.awaited, member.jobs
        member.awaited, member.jobs = None, ()
        wanted = agenda.open(jobs)
        try:
            reply = ray.get(awaited)
        except RayError as error:
            if not is_a_loss(error):
                raise EngineError(f"a worker failed: {cause(error)}") from error
            self._lost(member, wanted, error, agenda)
            return
        if not member.node:
            member.node, member.awaited = reply, member.handle.prepare.remote(*self._welcome)
            return
        if member.ready:
            self.moved += reply.nbytes
        elif isinstance(failure := reply.take(), Failure):
            failure.raise_again()
        else:
            member.ready = True
            self._false_starts, self._reason = 0, ""
        if not wanted:
            return
        self._pace.note(jobs, monotonic() - member.since)
        for job, answer in zip(jobs, reply.take(), strict=False):  # the last answer may be a failure
            if isinstance(answer, Failure):
                answer.raise_again(str(job))
            if job in wanted:
                agenda.close(job)
                yield job, settled(job, answer)

    def _lost(self, member: Member, jobs: Sequence[Job], error: RayError, agenda: Agenda) -> None:
        """A member is gone, or out of reach, which is the same to us: others do its jobs, another takes its place."""
        self._dismiss(member)
        agenda.lose(jobs, member.node, {job for other in self._members for job in other.jobs})
        if jobs:
            job = max(jobs, key=lambda job: len(agenda.losses[job]))
            what = f"{job} and {len(jobs) - 1} more" if len(jobs) > 1 else str(job)
            lost, give_up = len(agenda.losses[job]), hopeless(agenda.losses[job])
        elif not member.ready:
            self._wait_before_another(error)
            if not (member.node or failed_itself(error)):
                return  # its node was lost before it arrived
            self._false_starts += not member.node or member.node in living()
            what, lost = "starting up", self._false_starts
            give_up = lost >= LOSSES * self.count and not any(other.ready for other in self._members)
        else:
            return  # nobody waits for what it did
        if give_up:
            raise EngineError(
                f"{lost} workers were lost over {what}. Of the last one Ray says: {cause(error)} One that needs "
                f"more memory than its node has is ended without a word. Use fewer workers on a node "
                f"(Ray(cpus_per_worker=2)), or engine='loop' to see it happen in this process."
            ) from error
        warn(f"a worker was lost in {what}; another one does it again. Ray says: {cause(error)}")

    def _wait_before_another(self, error: RayError) -> None:
        """A turn, and twice as long with every round of workers that do not get ready: a node may stay broken."""
        rounds = self._false_starts // self.count
        self._not_before, self._reason = monotonic() + min(LONGEST, TURN * 2.0 ** min(rounds, 10)), cause(error)
