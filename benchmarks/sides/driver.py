"""The driver of a cluster, with a population so large and networks so small that it has all the work.

python -m benchmarks.sides.driver [--quick]      (a child; `cluster.py` starts it)
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from functools import partial
from time import perf_counter, process_time

from torch.nn import functional as F

import esgd
from benchmarks.children import Answer, serve
from benchmarks.workloads import mlp, taught

POPULATION, SAMPLES, LONG = 1000, 64, 1000


class Driver:
    def __init__(self, population: int, exits: ExitStack) -> None:
        self.population, self.exits = population, exits
        x, y = taught(2 * SAMPLES, shape=(4,), classes=2)
        train, fitness = (x[:SAMPLES], y[:SAMPLES]), (x[SAMPLES:], y[SAMPLES:])
        self.task = esgd.Supervised(partial(mlp, 4, 2), F.cross_entropy, train=train, fitness=fitness, batch_size=32)

    def open(self) -> None:
        recipe = esgd.Recipe(population=self.population, generations=LONG, sgd_epochs=1)
        generations = esgd.evolve(self.task, recipe, seed=0, engine=esgd.Ray(workers=2))
        self.generations = self.exits.enter_context(closing(generations))  # type: ignore[type-var]

    def round(self) -> Answer:
        begun, spent = perf_counter(), process_time()
        next(self.generations)
        milliseconds = 1e3 * (process_time() - spent) / self.population
        return {"seconds": perf_counter() - begun, "milliseconds": milliseconds}


if __name__ == "__main__":
    with ExitStack() as exits:
        serve(lambda: Driver(8 if "--quick" in sys.argv else POPULATION, exits))
