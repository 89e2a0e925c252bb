"""`Ray(inner, workers)`: the machines of a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from esgd.engines.computing import counts
from esgd.engines.loop import Loop
from esgd.engines.pool.pool import Inner, Pool
from esgd.engines.ray.parcel import Parcel
from esgd.engines.workshop import HandedOut
from esgd.errors import EngineError, MissingExtraError, RecipeError
from esgd.protocols import Rules, Tick, Workshop


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Workers on a Ray cluster that each do the work of `inner`: on this machine, or wherever `address` leads.

    | field             | meaning                                                                                      |
    |-------------------|----------------------------------------------------------------------------------------------|
    | `workers`         | how many; None is as many as the nodes hold, and follows the cluster as it grows and shrinks |
    | `cpus_per_worker` | what a worker asks of its node; threads are `inner`'s, 1 if it does not say                  |
    | `gpus_per_worker` | GPUs of a worker, a fraction to share one; `inner` then computes on "cuda"                   |
    | `address`         | of a cluster, "host:6379" or "auto"; None is $RAY_ADDRESS, or else a Ray on this machine     |
    | `patience`        | seconds for which there may be no worker at all before the run stops                         |
    | `slow`            | a job that takes so many times as long as usual is begun once more by somebody idle          |

    The result has the same bits for any number of workers, in whatever order they finish and whatever is lost on the
    way: those of `inner` with one thread. A process that has joined a cluster already (`ray.init`) stays with that one.
    """

    inner: Inner = field(default_factory=Loop)
    workers: int | None = None
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    address: str | None = None
    patience: float = 120.0
    slow: float = 3.0

    def __post_init__(self) -> None:
        if self.workers is not None and not counts(self.workers):
            raise RecipeError(f"workers={self.workers!r} is not 1 or more. Use None for as many as the cluster holds.")
        for name, least in (("cpus_per_worker", 0.0), ("gpus_per_worker", 0.0), ("patience", 1.0), ("slow", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
                raise RecipeError(f"{name}={value!r} is not a number, {least:g} or more.")
        if not self.cpus_per_worker and not self.gpus_per_worker:
            raise RecipeError("a worker that asks for no CPU and no GPU fits anywhere any number of times. Use 1 CPU.")
        if isinstance(self.inner, Pool | Ray):
            raise RecipeError("a worker is one process. Use Ray(inner=Loop()) or Ray(inner=Vmap()), with more workers.")
        if self.inner.device.startswith("cuda") and not self.gpus_per_worker:
            raise RecipeError("Ray hides GPUs from workers that ask for none. Use gpus_per_worker=1, or a fraction.")
        if self.address is not None and "://" in self.address:
            raise RecipeError(
                f"address={self.address!r} leads through a proxy that would copy every row once more. Run on a node of "
                f"the cluster, by `ray job submit` for instance, where address='auto' finds it."
            )

    @contextmanager
    def open(self, rules: Rules, tick: Tick) -> Iterator[Workshop]:
        try:
            from esgd.engines.ray.cluster import Asked, joined
            from esgd.engines.ray.troupe import Troupe
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise MissingExtraError("Ray", "ray", "engine='ray'") from error
        asked = Asked(cpus=self.cpus_per_worker, gpus=self.gpus_per_worker)
        parcel = self._parcel(rules)
        with joined(self.address, asked, self.workers):
            troupe = Troupe(
                parcel,
                asked,
                device="cuda" if self.gpus_per_worker else self.inner.device,
                size=lambda: self.workers or asked.room,
                patience=self.patience,
                slow=self.slow,
            )
            try:
                yield HandedOut(rules, troupe, grouping=self.inner.groups, seats=self.inner.seats, tick=tick)
            finally:
                troupe.close()

    def _parcel(self, rules: Rules) -> Parcel:
        """What every worker is told first: its engine, whose device it finds on its node, and the rules."""
        engine: Any = replace(self.inner, threads=self.inner.threads or 1)  # type: ignore[type-var]
        try:
            return Parcel.of((engine, rules))
        except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
            raise EngineError(
                f"the task cannot be sent to other machines: {error}. Data, network and loss are pickled once; open "
                f"files, locks, generators and connections cannot be. Build them inside make_model or the function "
                f"that returns the batches, or use engine='loop' or 'vmap', which need no other process."
            ) from error
