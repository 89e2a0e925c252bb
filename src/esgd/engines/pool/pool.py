"""`Pool(inner, workers)`: every core or GPU of one machine."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from esgd.engines.computing import cores, counts
from esgd.engines.jobs import Bench
from esgd.engines.loop import Loop
from esgd.engines.pool.crew import Crew
from esgd.engines.pool.memory import Memory
from esgd.engines.pool.wire import Parcel, pack
from esgd.engines.workshop import HandedOut
from esgd.errors import EngineError, RecipeError
from esgd.policies import Policy
from esgd.protocols import Rules, Tick, Workshop


class Inner(Protocol):
    """An engine that works at benches, and so can work at several: `Loop`, `Vmap`."""

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int | None: ...

    @property
    def seats(self) -> int: ...

    def groups(self, policies: Sequence[Policy]) -> list[list[int]]: ...

    def bench(self, rules: Rules) -> Bench: ...


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Worker processes that each do the work of `inner`, one thread each on CPUs, one process per GPU.

    Rows lie in shared memory; task and network go to a worker once. The result has the same bits for any number of
    workers, in whatever order they finish and however many of them are killed: those of `inner` with one thread.
    `workers=None` is one per core, or one per GPU if `inner` is on "cuda".
    """

    inner: Inner = field(default_factory=Loop)
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and not counts(self.workers):
            raise RecipeError(f"workers={self.workers!r} is not 1 or more. Use None for one per core or GPU.")
        if isinstance(self.inner, Pool):
            raise RecipeError("a Pool of a Pool is a Pool of more workers. Use Pool(inner=Loop(), workers=…).")

    @contextmanager
    def open(self, rules: Rules, tick: Tick) -> Iterator[Workshop]:
        memory = Memory()
        crew = Crew(self._welcomes(rules, memory), memory)
        try:
            crew.start()
            yield HandedOut(rules, crew, grouping=self.inner.groups, seats=self.inner.seats, tick=tick)
        finally:
            crew.close()

    def check_sendable(self, rules: Rules) -> None:
        """Refuse a task that cannot be sent to other processes."""
        self._welcome(self.inner.device, rules, Memory())

    def _welcomes(self, rules: Rules, memory: Memory) -> list[Parcel]:
        """What each worker is told first: its engine and the rules, packed once for each device."""
        devices = self._devices()
        packed = {device: self._welcome(device, rules, memory) for device in dict.fromkeys(devices)}
        return [packed[device] for device in devices]

    def _devices(self) -> list[str]:
        """The device of each worker; several GPUs take turns."""
        gpus = torch.cuda.device_count() if self.inner.device == "cuda" else 0
        workers = self.workers or gpus or cores()
        return [f"cuda:{number % gpus}" if gpus else self.inner.device for number in range(workers)]

    def _welcome(self, device: str, rules: Rules, memory: Memory) -> Parcel:
        if os.name != "posix":
            raise EngineError(
                "Pool hands open files from process to process, which this system does not do. Use engine='loop' or "
                "'vmap'; torch's own threads use all cores there too."
            )
        engine: Any = replace(self.inner, device=device, threads=self.inner.threads or 1)  # type: ignore[type-var]
        try:
            return pack((engine, rules), memory, share=True)
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            raise EngineError(
                f"the task cannot be sent to worker processes: {error}. Data, network and loss are pickled once for "
                f"each; open files, locks, generators and connections cannot be. Build them inside make_model or the "
                f"function that returns the batches, or use engine='loop' or 'vmap', which need no other process."
            ) from error
