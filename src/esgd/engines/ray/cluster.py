"""The cluster: joining one or starting one, and what it has."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import ray
from ray._private import ray_constants, worker

from esgd.engines.computing import available_memory, cores
from esgd.errors import EngineError

STORE = 1 << 30
"""Bytes of the object store of a Ray that is started here. Its own choice, a third of the memory, is for other work."""

REACH = 10.0  # seconds until an address has to answer


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a worker asks of its node."""

    cpus: float
    gpus: float

    @property
    def options(self) -> dict[str, Any]:
        """Of its actor. Ray need not restart it nor try anything again: its jobs go to whoever is there."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "scheduling_strategy": "SPREAD", "max_restarts": 0}

    @property
    def room(self) -> int:
        """How many workers the nodes could hold if they had nothing else to do."""
        asked = {name: amount for name, amount in (("CPU", self.cpus), ("GPU", self.gpus)) if amount}
        return sum(min(int(node.get(name, 0) / amount) for name, amount in asked.items()) for node in _nodes())

    def unmet(self, seconds: float, reason: str) -> EngineError:
        """What to say if nobody could be placed for so long; `reason` is what became of the last one, if anything."""
        nodes = [f"{count} × ({what})" for what, count in Counter(map(_spelt, _nodes())).items()]
        return EngineError(
            f"no worker could be placed on the cluster in {seconds:g} s. Each asks one node for "
            f"{_spelt({'CPU': self.cpus, 'GPU': self.gpus})}; the nodes are {' and '.join(nodes) or 'gone'}, and of "
            f"all that {_spelt(ray.available_resources())} is free. Add nodes, stop what else runs there, or ask for "
            f"less: Ray(cpus_per_worker=…, gpus_per_worker=…)."
            + (f" The last one was lost: {reason}" if reason else "")
        )


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _spelt(resources: dict[str, float]) -> str:
    """
    >>> _spelt({"CPU": 4.0, "GPU": 0.5, "memory": 2e9})
    '4 CPU, 0.5 GPU'
    """
    return ", ".join(f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)) or "no CPU"


@contextmanager
def joined(address: str | None, asked: Asked, workers: int | None) -> Iterator[None]:
    """The cluster that this process has joined already, the one at the address, or a new one on this machine."""
    if ray.is_initialized():
        yield
        return
    where, terminated = address or os.environ.get("RAY_ADDRESS") or "local", signal.getsignal(signal.SIGTERM)
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _changed(worker, _worker_logs_enabled=False):  # or it prints onto stdout what it thinks of lost nodes
        try:
            if where == "local":
                _start(max(cores(), ceil((workers or 0) * asked.cpus)), quietly)
            else:
                _knock(where)
                ray.init(where, **quietly)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"there is no Ray cluster at address={where!r}: {error}. Start one with `ray start --head`, correct "
                f"the address, or leave it out for a Ray on this machine."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminated)  # Ray has put its own there


def _start(cpus: int, quietly: dict[str, Any]) -> None:
    """A Ray that only this machine can reach. On Linux it would listen to the whole network, whatever address it is
    given, unless it is told that it knows nothing of clusters, as it does on macOS."""
    store = int(min(STORE, available_memory() / 4))
    with _changed(ray_constants, ENABLE_RAY_CLUSTER=False):
        ray.init("local", num_cpus=cpus, object_store_memory=store, include_dashboard=False, **quietly)


def _knock(address: str) -> None:
    """See whether anybody is there: Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()


@contextmanager
def _changed(module: Any, **names: Any) -> Iterator[None]:
    """Other values of a module's own settings, for a while: some of Ray's have no other switch."""
    before = {name: getattr(module, name, None) for name in names}
    vars(module).update(names)
    try:
        yield
    finally:
        vars(module).update(before)
