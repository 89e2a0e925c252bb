"""`Ray(inner, workers)`: the machines of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from esgd._limits import within_limits
from esgd._validation import is_count
from esgd.engines.cluster.serialized import Serialized
from esgd.engines.dispatch import Dispatcher
from esgd.engines.inner import Inner, check_inner, for_a_worker, sending
from esgd.engines.sequential import Loop
from esgd.errors import MissingExtraError, RecipeError
from esgd.protocols import HoldsData, Session, Setup, Tick

LEAST = 1e-4
"""Of a CPU or GPU, the smallest share that Ray knows."""

MOST = 100_000  # workers


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

    The result is bit-identical for any number of workers, in whatever order they finish and whatever is lost on the
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
        if self.workers is not None and not is_count(self.workers, most=MOST):
            raise RecipeError(
                f"workers={self.workers!r} is not a whole number from 1 to {MOST:,}, which is all that one driver "
                f"could talk to. Use None for as many as the cluster holds."
            )
        for name, least in (("cpus_per_worker", 0.0), ("gpus_per_worker", 0.0), ("patience", 1.0), ("slow", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
                raise RecipeError(f"{name}={value!r} is not a number, {least:g} or more.")
        self._check_resources()
        check_inner(self.inner, "Ray")
        if self.inner.device.startswith("cuda") and not self.gpus_per_worker:
            raise RecipeError("Ray hides GPUs from workers that ask for none. Use gpus_per_worker=1, or a fraction.")
        if self.address is not None and not (isinstance(self.address, str) and self.address.strip()):
            raise RecipeError(
                f"address={self.address!r} is not an address. Write 'host:6379', 'auto' for the cluster that this "
                f"machine belongs to, or leave it out."
            )
        if self.address is not None and "://" in self.address:
            raise RecipeError(
                f"address={self.address!r} leads through a proxy that would copy every row once more. Run on a node of "
                f"the cluster, by `ray job submit` for instance, where address='auto' finds it."
            )

    def _check_resources(self) -> None:
        for name in ("cpus_per_worker", "gpus_per_worker"):
            value = getattr(self, name)
            if value and not LEAST <= value < inf:
                raise RecipeError(f"{name}={value!r} is not 0, nor from {LEAST:g} on: Ray counts in such steps. Use 1.")
        if not self.cpus_per_worker and not self.gpus_per_worker:
            raise RecipeError("a worker that asks for no CPU and no GPU fits anywhere any number of times. Use 1 CPU.")
        if self.gpus_per_worker > 1 and self.gpus_per_worker != int(self.gpus_per_worker):
            raise RecipeError(
                f"gpus_per_worker={self.gpus_per_worker!r} is neither whole nor a share of one GPU. Ray divides a "
                f"single GPU only. Use 0.5, 1 or 2."
            )

    @contextmanager
    def open(self, setup: Setup, tick: Tick) -> Iterator[Session]:
        try:
            from esgd.engines.cluster.connection import connected
            from esgd.engines.cluster.executor import ClusterExecutor
            from esgd.engines.cluster.resources import WorkerResources
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise MissingExtraError("Ray", "ray", "engine='ray'") from error
        resources = WorkerResources(cpus=self.cpus_per_worker, gpus=self.gpus_per_worker)
        serialized = self._serialized(setup)
        with within_limits(), connected(self.address, resources, self.workers):
            executor = ClusterExecutor(
                serialized,
                resources,
                device="cuda" if self.gpus_per_worker else self.inner.device,
                size=lambda: self.workers or resources.room,
                patience=self.patience,
                slow=self.slow,
            )
            try:
                yield Dispatcher(
                    setup, executor, grouping=self.inner.groups, rows_at_once=self.inner.rows_at_once, tick=tick
                )
            finally:
                executor.close()

    def _serialized(self, setup: Setup) -> Serialized:
        """What every worker is told first: its engine, whose device it finds on its node, and the setup."""
        frozen = [each.detach() for each in setup.genome.template.parameters() if not each.requires_grad]
        with sending("other machines"):
            held = setup.task.data() if isinstance(setup.task, HoldsData) else ()
            return Serialized.of((for_a_worker(self.inner), setup), data=(held, frozen))
