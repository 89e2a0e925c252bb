"""A pool without processes: what its workers are told is packed and unpacked as for a pool or a cluster, and jobs are
given to them in turn, so that individuals meet other networks than they would in `Loop`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from esgd.engines.cluster.serialized import Serialized
from esgd.engines.dispatch import Dispatcher
from esgd.engines.inline import InlineExecutor
from esgd.engines.inner import Inner, for_a_worker
from esgd.engines.jobs import Job
from esgd.engines.processes.memory import MappedSegments, SharedMemory
from esgd.engines.processes.messages import pack, unpack
from esgd.engines.sequential import Loop
from esgd.protocols import Session, Setup, Tick


def through_a_pool(value: Any) -> Any:
    """As a worker of `Pool` has it."""
    memory, mine = SharedMemory(), MappedSegments(private=True)
    packed, alive = pack(value, memory, share=True), memory.alive()
    for number in packed.segments:
        mine.add(number, os.dup(alive[number].descriptor))
    return unpack(packed.content, mine, packed.buffers)


def through_ray(value: Any) -> Any:
    """As an actor of `Ray` has it."""
    return Serialized.of(value).take()


class InTurn(InlineExecutor):
    """Several workers in this process: each job goes to the next."""

    def __init__(self, kernels: list[Any], threads: int | None) -> None:
        super().__init__(kernels[0], threads)
        self.kernels, self.given = kernels, 0

    @property
    def workers(self) -> int:  # type: ignore[override]
        return len(self.kernels)

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        for job in jobs:
            self.kernel = self.kernels[self.given % self.workers]
            self.given += 1
            yield from super().run([job])


@dataclass(frozen=True, kw_only=True)
class Inline:
    """`Pool(inner, workers)` in one process."""

    inner: Inner = field(default_factory=Loop)
    workers: int = 2
    travel: Callable[[Any], Any] = through_a_pool

    @contextmanager
    def open(self, setup: Setup, tick: Tick) -> Iterator[Session]:
        sent = [self.travel((for_a_worker(self.inner), setup)) for _ in range(self.workers)]
        executor = InTurn([engine.kernel(given) for engine, given in sent], 1)
        yield Dispatcher(setup, executor, grouping=self.inner.groups, rows_at_once=self.inner.rows_at_once, tick=tick)
