"""A population on two workers, with esgd: network, loss and data aside, this is all that a user writes.

python -m benchmarks.sides.script      (`mishaps.py` counts its lines and lets things go wrong in it)
"""

from __future__ import annotations

import esgd
from benchmarks.faults import MOMENTUM, RATES, WORKERS, population
from benchmarks.workloads import FULL_FITNESS, GENERATIONS, Workload
from esgd.protocols import Draw, Species
from esgd.species import LogUniform


def species(draw: Draw) -> esgd.Policy:
    lr = LogUniform(*RATES).draw(draw.seeds("lr"))
    return esgd.Policy(optimizer="sgd", hyper={"lr": lr, "momentum": MOMENTUM})


def train(workload: Workload, folder: str, species: Species = species) -> esgd.Result:
    data, fitness = workload.data(FULL_FITNESS)
    task = esgd.Supervised(
        workload.make_model, workload.loss, train=data, fitness=fitness, batch_size=workload.batch, nonnegative=True
    )
    recipe = esgd.Recipe(
        population=workload.individuals, generations=GENERATIONS, sgd_epochs=workload.epochs, species=species
    )
    return esgd.fit(task, recipe, seed=0, run=folder, engine=esgd.Ray(workers=WORKERS), progress=False)


if __name__ == "__main__":
    print(train(population(), "runs/script"))
