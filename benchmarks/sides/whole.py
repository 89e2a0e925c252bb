"""A whole run of ours: generations with back-off, evolution and checkpoints, as `fit()` does them.

    python -m benchmarks.sides.whole WORKLOAD ENGINE [--quick]      (a child; `against_ray.py` starts it)

`seconds` is the whole run, opening the engine included; `net` is the generations and their checkpoints alone.
"""

from __future__ import annotations

import sys
import tempfile
from time import perf_counter

import esgd
from benchmarks.children import Answer, serve
from benchmarks.engines import engine_named
from benchmarks.workloads import FULL_FITNESS, GENERATION_EPOCHS, GENERATIONS, MOMENTA, RATES, Workload, asked_for
from esgd._algorithm.initialization import prepare
from esgd.run import open_folder
from esgd.species import LogUniform, Uniform


def species(draw: esgd.protocols.Draw) -> esgd.Policy:
    """SGD with the learning rates and momenta that the peers draw."""
    lr, momentum = LogUniform(*RATES).draw(draw.seeds("lr")), Uniform(*MOMENTA).draw(draw.seeds("momentum"))
    return esgd.Policy(optimizer="sgd", hyper={"lr": lr, "momentum": momentum})


class Whole:
    def __init__(self, workload: Workload, engine: str) -> None:
        train, fitness = workload.data(FULL_FITNESS)
        self.task = esgd.Supervised(
            workload.make_model, workload.loss, train=train, fitness=fitness, batch_size=workload.batch
        )
        self.recipe = esgd.Recipe(
            population=workload.individuals,
            generations=GENERATIONS,
            sgd_epochs=GENERATION_EPOCHS,
            species=species,
        )
        self.engine = engine

    def open(self) -> None:
        """Every round opens its own."""

    def round(self) -> Answer:
        net, begun = 0.0, perf_counter()
        rules, recipe = prepare(self.task, self.recipe, 0), self.recipe
        engine = engine_named(self.engine, rules, recipe.population, recipe.total_epochs)
        with tempfile.TemporaryDirectory() as path, open_folder(path) as folder:
            for generation in esgd.evolve(self.task, self.recipe, seed=0, engine=engine):
                saving = perf_counter()
                folder.save(generation.state, run="benchmark")
                net += generation.seconds + perf_counter() - saving
        return {"seconds": perf_counter() - begun, "net": net, "fitness": generation.best.fitness}


if __name__ == "__main__":
    serve(lambda: Whole(asked_for(), sys.argv[2]))
