"""The troupe: actors that take jobs from a queue. Actors and whole nodes may come and go; the jobs get done."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any

import ray
import torch
from ray.exceptions import GetTimeoutError, RayError
from torch import Tensor

from esgd.engines.jobs import Job, Space, Train
from esgd.engines.ray.actor import Actor
from esgd.engines.ray.letters import Shelf, letter, received
from esgd.errors import EngineError
from esgd.protocols import Rules

STARTING = "starting up"
DEATHS = 3
"""So many actors may be lost over one job before the run stops: the job itself must be to blame."""

FEW = 3
"""Jobs of a kind that must be done before another one can be called slow."""

LOOK = 1.0  # seconds between two looks at who is slow, while somebody has nothing to do


@dataclass(eq=False)
class Member:
    """An actor, and the job it has."""

    handle: Any
    reference: Any  # of its answer
    job: Job | None
    since: float
    ready: bool = False


class Troupe:
    """`Hands` that are actors of a Ray cluster."""

    def __init__(
        self,
        parcel: Any,
        rules: Rules,
        *,
        size: Callable[[], int],
        resources: dict[str, float],
        patience: float,
        slow: float,
    ) -> None:
        self._parcel, self._rules, self._size, self._resources = parcel, rules, size, resources
        self._patience, self._slow = patience, slow
        self._members = list[Member]()
        self._deaths = Counter[str]()
        self._shelf: Shelf | None = None
        self._actor: Any = ray.remote(num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0))(Actor)
        self.moved = 0

    @property
    def count(self) -> int:
        return self._size()

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def within_reach(self, tensor: Tensor) -> Tensor:
        return tensor

    def start(self) -> None:
        """Ask for the actors; they get ready while other things are done."""
        while len(self._members) < self._size():
            handle = self._actor.remote()
            self._members.append(Member(handle, handle.prepare.remote([self._parcel]), None, monotonic()))

    def close(self) -> None:
        while self._members:
            ray.kill(self._members.pop().handle)

    def do(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        queue, again, open_ = iter(jobs), deque[Job](), dict[int, Job]()
        lasted, more = defaultdict[type[Job], list[float]](list), True
        heard = monotonic()
        try:
            while more or again or open_:
                self.start()
                for member in self._idle():
                    job = again.popleft() if again else next(queue, None)
                    if job is None:
                        more = False
                        job = self._slowest(open_, lasted)
                    if job is None:
                        break
                    open_[id(job)] = job
                    self._give(member, job)
                if not (more or again or open_):
                    break
                for member in self._answering(heard, waiting=more or bool(again)):
                    heard = monotonic()
                    job, member.job = member.job, None
                    answer = self._answer(member, job, again, open_)
                    if job is not None and answer is not None and id(job) in open_:
                        del open_[id(job)]
                        lasted[type(job)].append((monotonic() - member.since) / _weight(job))
                        result, individuals = answer
                        received(job, individuals, self._rules)
                        self.moved += 0 if individuals is None else individuals.nbytes
                        yield job, result
        finally:
            self._shelf = None

    def _idle(self) -> list[Member]:
        return [member for member in self._members if member.ready and member.reference is None]

    def _give(self, member: Member, job: Job) -> None:
        content, moved = letter(job, self._on_shelf)
        self.moved += moved
        member.job, member.since = job, monotonic()
        member.reference = member.handle.open.remote(content)

    def _on_shelf(self, space: Space) -> Shelf:
        """The shelf of these parents; the last one's slices leave the object store when nobody reads them any more."""
        if self._shelf is None or self._shelf.space.rows is not space.rows:
            self._shelf = Shelf(space, ray.put)
        return self._shelf

    def _answering(self, heard: float, *, waiting: bool) -> list[Member]:
        """Those whose answer is there; waits for the first one without asking again and again."""
        busy = {member.reference: member for member in self._members if member.reference is not None}
        working = any(member.job is not None for member in busy.values())
        patience = None if working else max(0.0, heard + self._patience - monotonic())
        timeout = LOOK if working and not waiting and self._idle() else patience
        answered, _ = ray.wait(list(busy), num_returns=1, timeout=timeout)
        if not answered and not working and monotonic() - heard >= self._patience:
            raise self._nobody()
        return [busy[reference] for reference in answered]

    def _answer(self, member: Member, job: Job | None, again: deque[Job], open_: dict[int, Job]) -> Any:
        """What a member has answered; None if it is lost, or has just got ready."""
        reference, member.reference = member.reference, None
        try:
            kind, value = ray.get(reference)
        except GetTimeoutError:
            raise
        except RayError as error:
            self._lost(member, job, error, again, open_)
            return None
        if kind == "failed":
            if job is None or id(job) in open_:
                _raise(job, *value)
            return None
        if not member.ready:
            member.ready = True
            self._deaths.pop(STARTING, None)
            return None
        return value

    def _lost(self, member: Member, job: Job | None, error: RayError, again: deque[Job], open_: dict[int, Job]) -> None:
        """An actor, or its whole node, is gone: its job goes back to the queue, another takes its place."""
        self._members.remove(member)
        ray.kill(member.handle)  # it may only be out of reach: what it still answers is not wanted
        what = STARTING if job is None else str(job)
        if job is not None and id(job) not in open_:
            return  # another one has done it
        self._deaths[what] += 1
        how = _first_line(error)
        if self._deaths[what] >= DEATHS:
            raise EngineError(
                f"{DEATHS} actors were lost over {what}; of the last one Ray says: {how} One that is out of memory is "
                f"ended by Ray or by the system. Use fewer workers per node, or engine='loop' to see it happen here."
            ) from error
        warnings.warn(f"an actor was lost in {what} ({how}); another one does it again.", RuntimeWarning, stacklevel=2)
        if job is not None and not any(other.job is job for other in self._members):
            again.append(job)

    def _slowest(self, open_: dict[int, Job], lasted: dict[type[Job], list[float]]) -> Job | None:
        """A job that takes `slow` times as long as others of its kind, if it is not being done twice already."""
        now, doing = monotonic(), Counter(id(member.job) for member in self._members if member.job is not None)
        late = [
            (now - member.since, member.job)
            for member in self._members
            if member.job is not None
            and id(member.job) in open_
            and doing[id(member.job)] == 1
            and len(lasted[type(member.job)]) >= FEW
            and now - member.since > self._slow * _weight(member.job) * median(lasted[type(member.job)])
        ]
        return max(late, key=lambda pair: pair[0])[1] if late else None

    def _nobody(self) -> EngineError:
        asked = ", ".join(f"{name}: {amount:g}" for name, amount in self._resources.items())
        has, free = (_spelt(resources) for resources in (ray.cluster_resources(), ray.available_resources()))
        return EngineError(
            f"no worker could be started in {self._patience:g} s. Each asks for {asked}; the cluster has {has}, and "
            f"of that {free} is free. Add nodes, stop what else runs there, or ask for less: Ray(workers=…, "
            f"cpus_per_worker=…, gpus_per_worker=…)."
        )


def _weight(job: Job) -> int:
    """How many individuals a job is about: jobs of one kind are compared by the individual."""
    return len(job.numbers) if isinstance(job, Train) else len(job.births)


def _spelt(resources: dict[str, float]) -> str:
    counted = {name: amount for name, amount in resources.items() if name in ("CPU", "GPU")}
    return ", ".join(f"{name}: {amount:g}" for name, amount in sorted(counted.items())) or "nothing"


def _first_line(error: RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class InActorError(Exception):
    """Where an error arose in an actor."""

    def __str__(self) -> str:
        return "in an actor:\n\n" + str(self.args[0])


def _raise(job: Job | None, error: Exception | None, trace: str) -> None:
    """The actor's own exception where it can travel, with the traceback it had there."""
    if error is None:
        error = EngineError(f"an actor failed: {trace.strip().splitlines()[-1]}")
    if job is not None:
        error.add_note(f"This was {job}.")
    raise error from InActorError(trace)
