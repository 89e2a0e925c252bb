"""Ours, by engine: `train()` of an open session.

    python -m benchmarks.sides.ours WORKLOAD ENGINE [--quick]      (a child; `speed.py` starts it)

The same individuals, batch sizes, epochs and hyper-parameters as the plain loop, and inside the clock everything that
an SGD step does in a run: copies of the rows, optimizers, addressed randomness, the fitness at the end, the ledger.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import perf_counter

import esgd
from benchmarks.children import Answer, serve
from benchmarks.engines import engine_named
from benchmarks.workloads import Workload, asked_for
from esgd._algorithm.initialization import prepare
from esgd.operators import Averaged, Never, RandomStart
from esgd.protocols import Step


class Ours:
    def __init__(self, workload: Workload, engine: str, exits: ExitStack) -> None:
        self.workload, self.engine, self.exits = workload, engine, exits
        train, fitness = workload.data()
        task = esgd.Supervised(
            workload.make_model, workload.loss, train=train, fitness=fitness, batch_size=workload.batch
        )
        # Averaged: the plain side re-estimates no BatchNorm statistics either
        self.setup = prepare(task, esgd.Recipe(population=workload.individuals, buffers=Averaged()), 0)
        self.policies = [esgd.Policy(optimizer="sgd", hyper={"lr": lr, "momentum": m}) for lr, m in workload.hyper()]

    def open(self) -> None:
        """Start workers and choose engines; what is traced or compiled is so in the first round."""
        setup, size = self.setup, self.workload.individuals
        engine = engine_named(self.engine, setup, size)
        self.session = self.exits.enter_context(engine.open(setup, lambda phase, done, total: None))
        self.population = RandomStart()(setup.task, setup.genome, self.session, size, setup.seeds.at("init"))
        self.chosen = repr(engine)

    def round(self) -> Answer:
        step = Step(k=1, epochs=self.workload.epochs, backoff=Never())
        begun = perf_counter()
        self.session.train(self.population, self.policies, step)
        return {"seconds": perf_counter() - begun, "engine": self.chosen}


if __name__ == "__main__":
    with ExitStack() as exits:
        serve(lambda: Ours(asked_for(), sys.argv[2], exits))
