"""The executor whose workers are Ray actors. Actors and whole nodes come and go; the jobs get done."""

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

from esgd.engines.cluster.actor import Actor
from esgd.engines.cluster.failures import MOST_LOSSES, cause, failed_itself, must_give_up, was_lost
from esgd.engines.cluster.job_queue import JobDurations, JobQueue
from esgd.engines.cluster.local_node import LocalNode
from esgd.engines.cluster.messages import serialized_jobs, store_individuals
from esgd.engines.cluster.parents import NO_SLICES, StoredPopulation, StoredSlices
from esgd.engines.cluster.resources import WorkerResources, check_is_there, living
from esgd.engines.cluster.serialized import Serialized
from esgd.engines.contract import Stack
from esgd.engines.jobs import Build, Evaluate, Job
from esgd.engines.pickling import LARGE
from esgd.engines.warning import warn
from esgd.engines.worker_error import Failure
from esgd.errors import EngineError

TURN = 1.0
"""Seconds after which the driver looks up if no worker answers: is one late, has the cluster changed, is it there?"""

CENSUS = 5.0
"""Seconds between two looks at how many workers there should be."""

LONGEST = 60.0
"""Seconds after which at the latest another worker is tried where others could not get ready."""


@dataclass(eq=False)
class RemoteWorker:
    """An actor. It arrives at a node, then gets ready, then has jobs or is idle."""

    handle: Any
    awaited: Any  # reference of its next answer; None if it is idle
    node: str = ""
    ready: bool = False
    jobs: Sequence[Job] = ()
    since: float = field(default_factory=monotonic)


class ClusterExecutor:
    """An `Executor` whose workers are actors of a Ray cluster."""

    def __init__(
        self,
        serialized: Serialized,
        resources: WorkerResources,
        *,
        device: str,
        size: Callable[[], int],
        patience: float,
        slow: float,
    ) -> None:
        self._node = LocalNode()
        # What is small goes along with every call; what is large lies in the store, once for every node.
        setup = ray.put(serialized) if serialized.nbytes > LARGE else serialized
        self._setup: tuple[Any, ...] = setup, device, str(Path.cwd()), list(sys.path)
        self._resources, self._size, self._patience, self._slow = resources, size, patience, slow
        self._actor: Any = ray.remote(**resources.options)(Actor)
        self._workers, self._durations = list[RemoteWorker](), JobDurations()
        self._stored: StoredPopulation | None = None
        self._false_starts, self._reason = 0, ""
        self._counted = self._seen = self._not_before = monotonic()
        self.workers, self.bytes_moved = max(1, size()), 0
        self._start_workers()  # they get ready while other things are done

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def shared(self, tensor: Tensor) -> Tensor:
        return tensor

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        queue = JobQueue(jobs, self._durations)
        self._seen = monotonic()
        try:
            while True:
                self._look_around()
                self._assign(queue)
                if queue.is_done:
                    return
                for worker in self._answering():
                    yield from self._results(worker, queue)
        finally:
            for worker in self._workers:
                if worker.jobs:  # whatever it still does, its result is not wanted
                    worker.jobs, worker.since = (), monotonic()

    def close(self) -> None:
        """Nothing of the run stays on the cluster, even if somebody still holds the exception that ended it."""
        for worker in list(self._workers):
            self._end_worker(worker)
        self._setup, self._stored = (), None
        self._node.close()

    def _look_around(self) -> None:
        """Whether there are as many members as there should be, and anybody at all."""
        check_is_there()
        self._node.check()
        now = monotonic()
        if now - self._counted >= CENSUS:
            self._counted, self.workers = now, max(1, self._size())
        for worker in self._workers[::-1]:
            surplus = not worker.node and len(self._workers) > self.workers  # there is no room for it any more
            forgotten = worker.ready and worker.awaited is not None and not worker.jobs  # others did what it is at
            if surplus or (forgotten and now - worker.since > self._patience):
                self._end_worker(worker)
        self._start_workers()
        if any(worker.node for worker in self._workers):
            self._seen = now
        elif now - self._seen > self._patience:
            raise self._resources.unmet(self._patience, self._reason)

    def _start_workers(self) -> None:
        while len(self._workers) < self.workers and monotonic() >= self._not_before:
            handle = self._actor.remote()
            self._workers.append(RemoteWorker(handle, handle.arrive.remote()))

    def _end_worker(self, worker: RemoteWorker) -> None:
        self._workers.remove(worker)
        if ray.is_initialized() and not self._node.lost:  # or the call would start another one, or end this process
            ray.kill(worker.handle)

    def _assign(self, queue: JobQueue) -> None:
        """A job for every idle worker; when nothing is left, what others are late with."""
        late: list[list[Job]] | None = None
        for worker in [worker for worker in self._workers if worker.awaited is None]:
            jobs = queue.take()
            if not jobs:
                late = self._late(queue) if late is None else late
                if not late:
                    return
                jobs = late.pop()
            births = [job for job in jobs if isinstance(job, Evaluate | Build)]
            slices, serialized = self._slices(births, worker.node) if births else NO_SLICES, serialized_jobs(jobs)
            self.bytes_moved += serialized.nbytes
            worker.jobs, worker.since, worker.awaited = jobs, monotonic(), worker.handle.work.remote(serialized, slices)

    def _late(self, queue: JobQueue) -> list[list[Job]]:
        """Jobs that take `slow` times as long as usual and are not being done twice yet, the oldest last."""
        now, begun = monotonic(), Counter(job for worker in self._workers for job in worker.jobs)
        return [
            jobs
            for worker in sorted(self._workers, key=lambda worker: -worker.since)
            if (jobs := queue.open(worker.jobs))
            and begun[jobs[0]] == 1
            and now - worker.since > self._slow * self._durations.usual(worker.jobs)
        ]

    def _slices(self, jobs: Sequence[Evaluate | Build], node: str) -> StoredSlices:
        """Where the parents of these births are: all of them are of one population, most often the last one's."""
        space = jobs[0].parents
        assert isinstance(space, Stack), "jobs that have not travelled have populations in memory"
        self._node.check()
        if self._stored is None or not self._stored.is_of(space):
            self._stored = StoredPopulation(space)
        mates = (mate for job in jobs for birth in job.births for mate in birth.mates)
        slices, new = self._stored.slices(space, mates, node)
        self.bytes_moved += new
        return slices

    def _answering(self) -> list[RemoteWorker]:
        """The workers that have answered; waits for the first, but no longer than a turn."""
        awaited = {worker.awaited: worker for worker in self._workers if worker.awaited is not None}
        if not awaited:  # no worker has been started again yet
            sleep(TURN)
            return []
        some, _ = ray.wait(list(awaited), timeout=TURN)
        if some:  # others may have answered as well, and to ask for each of them alone would take long
            some, _ = ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        return [awaited[reference] for reference in some]

    def _results(self, worker: RemoteWorker, queue: JobQueue) -> Iterator[tuple[Job, Any]]:
        """What a worker has done; nothing if it has only arrived, got ready or been lost, or if it is not wanted."""
        awaited, jobs = worker.awaited, worker.jobs
        worker.awaited, worker.jobs = None, ()
        wanted = queue.open(jobs)
        self._node.check()
        try:
            reply = ray.get(awaited)
        except RayError as error:
            if not was_lost(error):
                raise EngineError(f"a worker failed: {cause(error)}") from error
            self._lost(worker, wanted, error, queue)
            return
        if not worker.node:
            worker.node, worker.awaited = reply, worker.handle.prepare.remote(*self._setup)
            return
        if worker.ready:
            self.bytes_moved += reply.nbytes
        elif isinstance(failure := reply.take(), Failure):
            failure.raise_again()
        else:
            worker.ready = True
            self._false_starts, self._reason = 0, ""
        if not wanted:
            return
        self._durations.note(jobs, monotonic() - worker.since)
        for job, answer in zip(jobs, reply.take(), strict=False):  # the last answer may be a failure
            if isinstance(answer, Failure):
                answer.raise_again(str(job))
            if job in wanted:
                queue.close(job)
                yield job, store_individuals(job, answer)

    def _lost(self, worker: RemoteWorker, jobs: Sequence[Job], error: RayError, queue: JobQueue) -> None:
        """A worker is gone, or out of reach, which is the same to us: others do its jobs, another takes its place."""
        self._end_worker(worker)
        queue.retry_lost(jobs, worker.node, {job for other in self._workers for job in other.jobs})
        if jobs:
            job = max(jobs, key=lambda job: len(queue.losses[job]))
            what = f"{job} and {len(jobs) - 1} more" if len(jobs) > 1 else str(job)
            lost, give_up = len(queue.losses[job]), must_give_up(queue.losses[job])
        elif not worker.ready:
            self._wait_before_another(error)
            if not (worker.node or failed_itself(error)):
                return  # its node was lost before it arrived
            self._false_starts += not worker.node or worker.node in living()
            what, lost = "starting up", self._false_starts
            give_up = lost >= MOST_LOSSES * self.workers and not any(other.ready for other in self._workers)
        else:
            return  # its result is not wanted
        if give_up:
            raise EngineError(
                f"{lost} workers were lost over {what}. Of the last one Ray says: {cause(error)} One that needs "
                f"more memory than its node has is ended without a word. Use fewer workers on a node "
                f"(Ray(cpus_per_worker=2)), or engine='loop' to see it happen in this process."
            ) from error
        warn(f"a worker was lost in {what}; another one does it again. Ray says: {cause(error)}")

    def _wait_before_another(self, error: RayError) -> None:
        """A turn, and twice as long with every round of workers that do not get ready: a node may stay broken."""
        rounds = self._false_starts // self.workers
        self._not_before, self._reason = monotonic() + min(LONGEST, TURN * 2.0 ** min(rounds, 10)), cause(error)
