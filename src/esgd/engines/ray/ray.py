"""`Ray(inner, workers)`: the machines of a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from esgd.engines.computing import available_memory, cores, counts
from esgd.engines.loop import Loop
from esgd.engines.pool.pool import Inner, Pool
from esgd.engines.ray.parcel import Parcel
from esgd.engines.workshop import HandedOut
from esgd.errors import EngineError, MissingExtraError, RecipeError
from esgd.protocols import Rules, Tick, Workshop

STORE = 1 << 30
"""Bytes of the object store of a Ray that is started here; Ray's own choice, a third of the memory, is for other work."""


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Actors of a Ray cluster that each do the work of `inner`: on this machine, or wherever `address` leads.

    | field             | meaning                                                                                     |
    |-------------------|---------------------------------------------------------------------------------------------|
    | `workers`         | actors; None is as many as the cluster has room for, looked at again in every generation    |
    | `cpus_per_worker` | what an actor asks of its node; threads are `inner`'s                                       |
    | `gpus_per_worker` | GPUs of an actor, a fraction to share one; `inner` then computes on "cuda"                  |
    | `address`         | of a running cluster: "auto", or "ray://host:10001"; None starts one on this machine        |
    | `patience`        | seconds in which, while nobody works, somebody must get ready; then the run stops           |
    | `slow`            | a job that takes so many times the median of its kind is begun once more by who is idle     |

    The result has the same bits for any number of actors, in whatever order they finish, and whatever is lost on the
    way: those of `inner`. Task and data go to every node once; a node needs this package and whatever the task imports.
    """

    inner: Inner = field(default_factory=lambda: Loop(threads=1))
    workers: int | None = None
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    address: str | None = None
    patience: float = 120.0
    slow: float = 3.0

    def __post_init__(self) -> None:
        if self.workers is not None and not counts(self.workers):
            raise RecipeError(f"workers={self.workers!r} is not 1 or more. Use None for as many as the cluster holds.")
        for name, low in (("cpus_per_worker", 0.0), ("gpus_per_worker", 0.0), ("patience", 1.0), ("slow", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= low:
                raise RecipeError(f"{name}={value!r} is not a number ≥ {low:g}.")
        if not self.cpus_per_worker + self.gpus_per_worker:
            raise RecipeError("an actor that asks for no CPU and no GPU can be anywhere. Use cpus_per_worker=1.")
        if isinstance(self.inner, Pool | Ray):
            raise RecipeError("an actor is one process. Use Ray(inner=Loop()) or Ray(inner=Vmap()), with more workers.")

    @contextmanager
    def open(self, rules: Rules, tick: Tick) -> Iterator[Workshop]:
        ray = _ray()
        from esgd.engines.ray.troupe import Troupe  # it imports Ray, which is an extra

        parcel = self._parcel(rules)
        with self._cluster(ray):
            troupe = Troupe(
                ray.put(parcel),
                rules,
                size=lambda: self.workers or self._room(ray),
                resources={"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker},
                patience=self.patience,
                slow=self.slow,
            )
            try:
                troupe.start()
                yield HandedOut(rules, troupe, grouping=self.inner.groups, seats=self.inner.seats, tick=tick)
            finally:
                troupe.close()

    @contextmanager
    def _cluster(self, ray: Any) -> Iterator[None]:
        """The cluster that this process has joined already, the one at `address`, or a new one for this run."""
        if ray.is_initialized():
            yield
            return
        here: dict[str, Any] = {
            "num_cpus": cores(),
            "_node_ip_address": "127.0.0.1",
            "object_store_memory": int(min(STORE, available_memory() / 4)),
            "include_dashboard": False,
        }
        try:
            ray.init(address=self.address or "local", log_to_driver=False, **({} if self.address else here))
        except ConnectionError as error:
            raise EngineError(
                f"there is no Ray cluster at address={self.address!r}: {error}. Start one with `ray start --head`, "
                f"correct the address, or leave it out for a Ray on this machine."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()

    def _room(self, ray: Any) -> int:
        """How many actors the cluster could hold if it had nothing else to do."""
        has = ray.cluster_resources()
        asked = {"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker}
        return max(1, min(int(has.get(name, 0) / amount) for name, amount in asked.items() if amount))

    def _parcel(self, rules: Rules) -> Parcel:
        device = "cuda" if self.gpus_per_worker else self.inner.device
        engine: Any = replace(self.inner, device=device, threads=self.inner.threads or 1)  # type: ignore[type-var]
        try:
            return Parcel.of((engine, rules))
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            raise EngineError(
                f"the task cannot be sent to other machines: {error}. Data, network and loss are pickled once; open "
                f"files, locks, generators and connections cannot be. Build them inside make_model or the function "
                f"that returns the batches, or use engine='loop'."
            ) from error


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("Ray", "ray", "engine='ray'") from error
    return ray
