"""The executor whose workers are processes. One that dies is replaced, and its job is run again."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from esgd.engines.jobs import Job
from esgd.engines.processes.memory import MappedSegments, SharedMemory
from esgd.engines.processes.messages import Channel, Message, pack, unpack
from esgd.engines.warning import warn
from esgd.engines.worker_error import Failure
from esgd.errors import EngineError

STARTING = "starting up"

MOST_LOSSES = 3
"""So many workers may die over one job before the run stops: the job itself must be to blame."""


DYING = 60.0
"""Seconds within which a process that has closed its channel ends by itself: on a busy machine torch takes some."""


class WorkerProcess:
    """One process, and what it has been told."""

    job: Job | None

    def __init__(self, setup: Message, memory: SharedMemory) -> None:
        self.memory, self.job, self.ready, self._told = memory, None, False, set[int]()
        with ExitStack() as ours, ExitStack() as theirs:  # what is open is closed where the next cannot be opened
            near, far = socket.socketpair()
            ours.callback(near.close)
            theirs.callback(far.close)
            lifeline, self._lifeline = os.pipe()
            ours.callback(os.close, self._lifeline)
            theirs.callback(os.close, lifeline)
            self.channel = Channel(near)
            ours.callback(self.channel.close)
            self.process = _started(far.fileno(), lifeline)
            ours.pop_all()
        with suppress(OSError):  # it has died already: that is heard when its answer is waited for
            self.send(setup)

    @property
    def idle(self) -> bool:
        return self.ready and self.job is None

    def send(self, message: Message) -> None:
        alive = self.memory.alive()
        new, gone = sorted(message.segments - self._told), sorted(self._told - alive.keys())
        content = pickle.dumps((new, gone, message.content, message.buffers))
        self.channel.send(content, [alive[number].descriptor for number in new])
        self._told = (self._told | message.segments) - set(gone)

    def release(self) -> None:
        """Wait until it has unmapped segments that are no longer used elsewhere; they take memory until then."""
        gone = sorted(self._told - self.memory.alive().keys())
        if not gone or not self.idle:
            return
        with suppress(EOFError, OSError):  # it has died: that is heard when it is given its next job
            self.channel.send(pickle.dumps(([], gone, None, ())))
            self.reply()
        self._told -= set(gone)

    def reply(self) -> Any:
        """What it has answered; EOFError if it has died."""
        content, _ = self.channel.receive()
        return unpack(content, MappedSegments())

    def end(self, within: float = 2.0) -> int:
        """End the process, whatever it is doing; returns its exit code. After so many seconds it is killed."""
        self.channel.close()
        os.close(self._lifeline)  # it ends itself now, if it has not ended yet
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _started(channel: int, lifeline: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "esgd.engines.processes.worker", str(channel), str(lifeline)],
        pass_fds=(channel, lifeline),
        stdin=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the pool to answer
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
        },
    )


class ProcessExecutor:
    """`Executor` with processes of this machine."""

    bytes_moved = 0  # rows lie in shared memory

    def __init__(self, setups: list[Message], memory: SharedMemory) -> None:
        self.workers, self.memory, self._setups = len(setups), memory, setups
        self._workers = dict[int, WorkerProcess]()
        self._deaths = Counter[str]()

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        for worker in self._workers.values():
            worker.release()  # first, or the population before the last would still be in memory
        return self.memory.empty(*shape, dtype=dtype)

    def shared(self, tensor: Tensor) -> Tensor:
        return self.memory.shared(tensor)

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        queue, again, more = iter(jobs), deque[Job](), True
        try:
            while more or again or any(worker.job is not None for worker in self._workers.values()):
                self._start_workers()
                for number, worker in list(self._workers.items()):
                    if worker.idle and (job := again.popleft() if again else next(queue, None)) is not None:
                        self._give(number, job, again)
                    elif worker.idle:
                        more = False
                if all(worker.idle for worker in self._workers.values()):
                    continue
                for number in self._answering():
                    job = self._workers[number].job
                    try:
                        reply = self._workers[number].reply()
                    except (EOFError, OSError):
                        self._lost(number, again)
                        continue
                    self._workers[number].job = None
                    if isinstance(reply, Failure):
                        reply.raise_again("" if job is None else str(job))
                    self._workers[number].ready = True
                    self._deaths.pop(STARTING, None)
                    if job is not None:
                        yield job, reply
        finally:
            for number, worker in list(self._workers.items()):
                if worker.job is not None:  # its result is no longer wanted
                    self._workers.pop(number).end()

    def start(self) -> None:
        """Start the workers; they get ready while other things are done."""
        self._start_workers()

    def close(self) -> None:
        while self._workers:
            self._workers.popitem()[1].end()

    def _start_workers(self) -> None:
        for number in range(self.workers):
            if number not in self._workers:
                self._workers[number] = WorkerProcess(self._setups[number], self.memory)

    def _give(self, number: int, job: Job, again: deque[Job]) -> None:
        worker = self._workers[number]
        worker.job = job
        try:
            worker.send(pack(job, self.memory))
        except OSError:
            self._lost(number, again)

    def _answering(self) -> list[int]:
        """The workers that have something to say; waits, without a timeout: a death is heard too."""
        lines = {id(worker.channel.connection): number for number, worker in self._workers.items() if not worker.idle}
        connections = [worker.channel.connection for worker in self._workers.values() if not worker.idle]
        return sorted(lines[id(connection)] for connection in wait(connections))

    def _lost(self, number: int, again: deque[Job]) -> None:
        """A worker has died: its job goes back to the queue, its place is filled at the next turn."""
        worker = self._workers.pop(number)
        code = worker.end(DYING)  # one that is killed here would look as if memory had been short
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        what = str(worker.job) if worker.job is not None else STARTING
        self._deaths[what] += 1
        if self._deaths[what] >= MOST_LOSSES:
            raise EngineError(
                f"{MOST_LOSSES} workers have died over {what}, the last one {how}. A worker that is out of memory is "
                f"ended by SIGKILL, one that crashes in native code by SIGSEGV; what it wrote is above. Use fewer "
                f"workers, or engine='loop' to see it happen in this process."
            )
        warn(f"a worker ended {how} in {what}; another one does it again.")
        if worker.job is not None:
            again.append(worker.job)
