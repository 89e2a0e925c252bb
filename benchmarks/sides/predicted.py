"""Generations on so many workers of a cluster, beside what `esgd explain --workers` says they take.

python -m benchmarks.sides.predicted WORKERS [--quick]      (a child; `cluster.py` starts it)
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from functools import partial

from torch.nn import functional as F

import esgd
from benchmarks.children import Answer, serve
from benchmarks.workloads import mlp, taught
from esgd.costs import cost
from esgd.engines.computing import cores
from esgd.scaling import Workers

POPULATION, SAMPLES, QUICK_SAMPLES, LONG = 12, 3072, 128, 1000


class Predicted:
    def __init__(self, workers: int, samples: int, exits: ExitStack) -> None:
        self.workers, self.exits = workers, exits
        x, y = taught(2 * samples, shape=(784,), classes=10)
        train, fitness = (x[:samples], y[:samples]), (x[samples:], y[samples:])
        make = partial(mlp, 784, 128, 64, 10)
        self.task = esgd.Supervised(make, F.cross_entropy, train=train, fitness=fitness, batch_size=128)
        self.recipe = esgd.Recipe(population=POPULATION, generations=LONG, sgd_epochs=3, early_abort=False)

    def open(self) -> None:
        generations = esgd.evolve(self.task, self.recipe, seed=0, engine=esgd.Ray(workers=self.workers))
        self.generations = self.exits.enter_context(closing(generations))  # type: ignore[type-var]
        next(self.generations)

    def round(self) -> Answer:
        """More workers than cores are as fast as there are cores."""
        told = cost(self.task, self.recipe, workers=Workers(min(self.workers, cores()), per_node=self.workers))
        generation = next(self.generations)
        line = generation.record()
        return {
            "seconds": generation.seconds,
            "ratio": told["cluster"]["seconds"] / generation.seconds,
            "bytes_ratio": told["cluster"]["bytes_moved"] / line["bytes_moved"],
        }


if __name__ == "__main__":
    with ExitStack() as exits:
        serve(lambda: Predicted(int(sys.argv[1]), QUICK_SAMPLES if "--quick" in sys.argv else SAMPLES, exits))
