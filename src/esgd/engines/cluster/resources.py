"""What a cluster has, and what a worker asks of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import floor
from typing import Any

import ray

from esgd.errors import EngineError


@dataclass(frozen=True, kw_only=True)
class WorkerResources:
    """What a worker asks of its node."""

    cpus: float
    gpus: float

    @property
    def options(self) -> dict[str, Any]:
        """Of its actor. Ray need not restart it nor try anything again: its jobs go to the other workers."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "scheduling_strategy": "SPREAD", "max_restarts": 0}

    @property
    def room(self) -> int:
        """How many workers the nodes could hold if they had nothing else to do."""
        return sum(self.on(node["Resources"]) for node in ray.nodes() if node["Alive"])

    def on(self, node: dict[str, float]) -> int:
        """How many of them a node could hold; a worker's share of a GPU is always of one and the same.

        >>> WorkerResources(cpus=0.1, gpus=0.4).on({"CPU": 16.0, "GPU": 4.0})
        8
        """
        fits = [_times(node.get("CPU", 0.0), self.cpus)] if self.cpus else []
        if self.gpus:
            gpus = node.get("GPU", 0.0)
            fits.append(int(gpus) * _times(1.0, self.gpus) if self.gpus < 1 else _times(gpus, self.gpus))
        return min(fits)

    def unmet(self, seconds: float, reason: str = "") -> EngineError:
        """What to say if no worker could be placed for so long; `reason` is what became of the last one."""
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        nodes = [f"{count} × ({what})" for what, count in Counter(map(_spelt, alive)).items()]
        return EngineError(
            "no worker could be placed on the cluster"
            + (f" in {seconds:g} s" if seconds else "")
            + f". Each asks one node for {_spelt({'CPU': self.cpus, 'GPU': self.gpus})}; the nodes are "
            f"{' and '.join(nodes) or 'gone'}, and of all that {_spelt(ray.available_resources())} is free. Add nodes, "
            f"stop what else runs there, or ask for less: Ray(cpus_per_worker=…, gpus_per_worker=…)."
            + (f" The last one was lost: {reason}" if reason else "")
        )


def living() -> set[str]:
    """The nodes that are there."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def check_is_there() -> None:
    """Refuse to go on without the cluster: the next call to Ray would start one that the whole network can reach."""
    if not ray.is_initialized():
        raise EngineError(
            "Ray has been shut down while a run was using it. Leave ray.shutdown() to the end of the script; a run "
            "with a folder can be resumed."
        )


def _times(amount: float, share: float) -> int:
    """How often a share is in an amount; Ray counts in ten thousandths.

    >>> _times(0.6, 0.2), _times(1.0, 0.3)
    (3, 3)
    """
    return floor(amount / share + 1e-6)


def _spelt(resources: dict[str, float]) -> str:
    """
    >>> _spelt({"CPU": 4.0, "GPU": 0.5, "memory": 2e9})
    '4 CPU, 0.5 GPU'
    """
    return ", ".join(f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)) or "no CPU"
