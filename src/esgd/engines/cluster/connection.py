"""Joining a cluster, or starting one on this machine that no other can reach; leaving it when the last run has."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import ceil
from typing import Any

import ray
from ray._private import ray_constants, utils, worker

from esgd._limits import available_memory
from esgd._signals import deferred_signals
from esgd.engines.cluster.addresses import check_answers, is_the_same
from esgd.engines.cluster.resources import WorkerResources, check_is_there
from esgd.engines.computing import cores
from esgd.errors import EngineError

STORE = 1 << 30
"""Bytes of the object store of a Ray that is started here. Its own choice, a third of the memory, is for other work."""

QUIETLY: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


class ClusterConnection:
    """What this process has joined for its runs, and how many of them use it: the last one leaves."""

    def __init__(self) -> None:
        self._runs, self._exits = 0, ExitStack()
        self._lock = threading.RLock()  # a run may be left while its memory is collected, at any moment

    def enter(self, address: str | None, join: Callable[[], AbstractContextManager[None]]) -> bool:
        """Whether it must be left again: what was there before any run of ours is not ours to leave."""
        with self._lock:
            if self._runs:
                check_is_there()
            if ray.is_initialized():
                _check_is_the_same(address, started_here=self._runs > 0)
            if not self._runs and ray.is_initialized():
                return False
            if not self._runs:
                self._exits.enter_context(join())
            self._runs += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._runs -= 1
            if not self._runs:
                self._exits.close()


_connection = ClusterConnection()


@contextmanager
def connected(address: str | None, resources: WorkerResources, workers: int | None) -> Iterator[None]:
    """The cluster that this process has joined already, the one at the address, or a new one on this machine."""
    leaves = _connection.enter(address, lambda: _opened(address, resources, workers))
    try:
        yield
    finally:
        if leaves:
            _connection.leave()


@contextmanager
def _opened(address: str | None, resources: WorkerResources, workers: int | None) -> Iterator[None]:
    where = (None if address == "auto" else address) or os.environ.get("RAY_ADDRESS") or address or "local"
    terminated = signal.getsignal(signal.SIGTERM)
    with _changed(worker, _worker_logs_enabled=False):  # or it prints onto stdout what it thinks of lost nodes
        try:
            if where == "local":
                _start(max(cores(), ceil((workers or 0) * resources.cpus)))
                if not resources.room:
                    raise resources.unmet(0)  # no node will ever be added
            else:
                _join(where)
            yield
        finally:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminated)  # Ray has put its own there


def _start(cpus: int) -> None:
    """A Ray that only this machine can reach. On Linux it would listen to the whole network, whatever address it is
    given, unless it is told that it knows nothing of clusters, as it does on macOS."""
    store = int(min(STORE, available_memory() / 4))
    with _changed(ray_constants, ENABLE_RAY_CLUSTER=False):
        try:
            with _uninterrupted():
                ray.init("local", num_cpus=cpus, object_store_memory=store, include_dashboard=False, **QUIETLY)
        except (OSError, ValueError, RuntimeError) as error:
            raise EngineError(
                f"a Ray could not be started on this machine: {_said(error)}. Use engine='pool', which needs none, or "
                f"join one that runs: Ray(address='auto')."
            ) from error
    at = ray.get_runtime_context().gcs_address
    if not at.startswith("127."):
        raise EngineError(
            f"the Ray that was started on this machine listens at {at}, where others can reach it. esgd does not "
            f"know how to keep Ray {ray.__version__} to itself. Use another version, or engine='pool'."
        )


def _join(where: str) -> None:
    if "://" in where:
        raise EngineError(
            f"$RAY_ADDRESS={where!r} leads through a proxy that would copy every row once more. Run on a node of the "
            f"cluster, by `ray job submit` for instance, or unset it."
        )
    try:
        check_answers(where)
        with _uninterrupted():
            ray.init(where, **QUIETLY)
    except (OSError, ValueError, RuntimeError) as error:
        raise EngineError(
            f"there is no Ray cluster at address={where!r}: {_said(error)}. Start one with `ray start --head`, correct "
            f"the address, or leave it out for a Ray on this machine."
        ) from error


def _check_is_the_same(address: str | None, *, started_here: bool) -> None:
    """Refuse an address that is not that of the cluster this process is part of."""
    at = ray.get_runtime_context().gcs_address
    if address in (None, "auto") or (address == "local" and started_here) or is_the_same(str(address), at):
        return
    raise EngineError(
        f"address={address!r} is not that of the Ray which this process has joined already, {at!r}. A process can be "
        f"part of one only. Leave the address out, or call ray.shutdown() first."
    )


def _said(error: Exception) -> str:
    return str(error).strip().rstrip(".")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C until Ray is complete: only then does it know what it has to take down again.

    Where the program does not answer SIGTERM, Ray's own ends the program and takes Ray down.
    """
    with deferred_signals(second_at_once=False) as waiting:
        keep = {"set_sigterm_handler": lambda handler: None} if signal.SIGTERM in waiting else {}
        with _changed(utils, **keep):
            yield


@contextmanager
def _changed(module: Any, **names: Any) -> Iterator[None]:
    """Other values of a module's own settings, for a while: some of Ray's have no other switch."""
    for name in names:
        if not hasattr(module, name):
            raise EngineError(
                f"Ray {ray.__version__} has no {module.__name__}.{name}, which keeps it quiet and to this machine. "
                f"Install a version that esgd knows (pip install 'esgd[ray]'), or use engine='pool'."
            )
    before = {name: getattr(module, name) for name in names}
    vars(module).update(names)
    try:
        yield
    finally:
        vars(module).update(before)
