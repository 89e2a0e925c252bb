"""`Pool(inner, workers)`: every core or GPU of one machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from esgd._limits import within_limits
from esgd._validation import is_count
from esgd.engines.computing import MOST, cores
from esgd.engines.dispatch import Dispatcher
from esgd.engines.inner import Inner, check_inner, for_a_worker, sending
from esgd.engines.processes.executor import ProcessExecutor
from esgd.engines.processes.memory import SharedMemory
from esgd.engines.processes.messages import Message, pack
from esgd.engines.sequential import Loop
from esgd.errors import EngineError, RecipeError, shown
from esgd.protocols import Session, Setup, Tick


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Worker processes that each do the work of `inner`: one thread each on CPUs, one process per GPU.

    Rows lie in shared memory; task and network go to a worker once. The result is bit-identical for any number of
    workers, in whatever order they finish and however many of them are killed: those of `inner` with one thread.
    `workers=None` is one per core, or one per GPU if `inner` is on "cuda".
    """

    inner: Inner = field(default_factory=Loop)
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and not is_count(self.workers):
            raise RecipeError(f"workers={shown(self.workers)} is not 1 or more. Use None for one per core or GPU.")
        if self.workers is not None and self.workers > MOST:
            raise RecipeError(f"workers={self.workers} exceeds {MOST}: no machine has so many cores. Use None.")
        check_inner(self.inner, "Pool")

    @contextmanager
    def open(self, setup: Setup, tick: Tick) -> Iterator[Session]:
        rows_at_once = self.inner.rows_at_once
        with within_limits():
            memory = SharedMemory()
            memory.hold_frozen(setup.genome.template)
            executor = ProcessExecutor(self._messages(setup, memory), memory)
            try:
                executor.start()
                yield Dispatcher(setup, executor, grouping=self.inner.groups, rows_at_once=rows_at_once, tick=tick)
            finally:
                executor.close()

    def check_sendable(self, setup: Setup) -> None:
        """Refuse a task that cannot be sent to other processes."""
        self._message(self.inner.device, setup, SharedMemory())

    def _messages(self, setup: Setup, memory: SharedMemory) -> list[Message]:
        """What each worker is told first: its engine and the setup, packed once for each device."""
        devices = self.devices
        packed = {device: self._message(device, setup, memory) for device in dict.fromkeys(devices)}
        return [packed[device] for device in devices]

    @property
    def devices(self) -> list[str]:
        """The device of each worker; several GPUs take turns."""
        gpus = torch.cuda.device_count() if self.inner.device == "cuda" else 0
        workers = self.workers or gpus or cores()
        return [f"cuda:{number % gpus}" if gpus else self.inner.device for number in range(workers)]

    def _message(self, device: str, setup: Setup, memory: SharedMemory) -> Message:
        if os.name != "posix":
            raise EngineError(
                "Pool passes open files from process to process, which this system does not do. Use engine='loop' or "
                "'vmap'; torch's own threads use all cores there too."
            )
        with sending("worker processes"):
            return pack((for_a_worker(self.inner, device=device), setup), memory, share=True)
