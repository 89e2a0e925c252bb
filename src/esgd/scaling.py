"""The cost of a generation on many workers: a model with four terms, each measured or counted.

| term      | seconds                                                                                       |
|-----------|-----------------------------------------------------------------------------------------------|
| SGD       | ⌈μ / N⌉ individuals one after another: all wait for the last one to finish                    |
| breeding  | K_v ⌈λ / N⌉ fitness passes; those of survivors that had been aborted are left out             |
| driver    | μ times its time for an individual with four births; other numbers were not measured          |
| network   | all bytes that are moved, one after another through the driver's own connection               |

The model assumes equal workers and equally long individuals, so it is a lower bound. Beyond N = μ the SGD step gets no
faster: this is the synchronous barrier. The time of the driver and of its network does not shrink with N.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from esgd.recipe import Recipe

DRIVER = 1.33e-3
"""Seconds of the driver for an individual and four births, measured by `benchmarks.cluster` on one core."""

PROCESS = 0.27e9
"""Bytes of a worker before it holds any row: 253 to 293 MB of Python, torch and Ray, as measured on digits."""

COPIES = 5
"""Rows that a worker holds: the individual, its mark, gradients and two moments of ADAM."""

STORED = 2
"""Rows of a worker in its node's object store: the individual as it came, and as it goes back."""


@dataclass(frozen=True)
class Workers:
    """Worker processes with one core each: `count` in total, `per_node` on a node; `gigabits` per second of the
    driver's network."""

    count: int
    per_node: int = 16
    gigabits: float = 10.0

    @property
    def nodes(self) -> int:
        return ceil(self.count / self.per_node)


def generation(recipe: Recipe, *, row: int, individual: float, evaluation: float, workers: Workers) -> dict[str, Any]:
    """Seconds by term, bytes moved and memory; `row` is in bytes, `individual` and `evaluation` in seconds of a worker.

    Individuals are sent to a worker and back. Parents are sent to every node that evaluates offspring. Survivors are
    sent back.
    """
    mu, steps = recipe.population_of(1), recipe.evolution_steps
    there = min(workers.per_node, workers.count)
    moved = row * (2 * mu + steps * mu * (workers.nodes + 1))
    terms = {
        "sgd": ceil(mu / workers.count) * individual,
        "breeding": steps * ceil(recipe.offspring_of(1) / workers.count) * evaluation,
        "driver": mu * DRIVER,
        "network": 8 * moved / (workers.gigabits * 1e9),
    }
    return {
        "workers": workers.count,
        "per_node": there,
        "seconds_per_individual": individual,
        "seconds_per_evaluation": evaluation,
        "row_bytes": row,
        "seconds": sum(terms.values()),
        **terms,
        "bytes_moved": moved,
        "memory_per_node": int(there * PROCESS) + row * ((COPIES + STORED) * there + steps * mu),
    }
