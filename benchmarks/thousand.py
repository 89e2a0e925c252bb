"""Does a network cost more in a population of a thousand than in one of 64? It must not.

    python -m benchmarks.thousand [--repeats 5] [--quick]

One generation of 1,000 networks of W1 with 4,000 offspring beside one of 64 with 256, both on pools of batched engines.
The two runs are open side by side and take turns, each first in every other repeat. The ratio is that of the seconds
for each network, so that 1 is linear. The first generation of each warms up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import esgd
from benchmarks.engines import MAKERS
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from benchmarks.sides.whole import species
from benchmarks.workloads import FULL_FITNESS, WORKLOADS

SIZES, QUICK_SIZES, REPEATS, TARGET = (64, 1000), (2, 4), 5, 1.0


def generations(individuals: int, count: int) -> Iterator[esgd.Generation]:
    workload = WORKLOADS["W1"]
    train, fitness = workload.data(FULL_FITNESS)
    task = esgd.Supervised(workload.make_model, workload.loss, train=train, fitness=fitness, batch_size=workload.batch)
    recipe = esgd.Recipe(
        population=individuals,
        offspring=4 * individuals,
        generations=count,
        sgd_epochs=workload.epochs,
        species=species,
    )
    return esgd.evolve(task, recipe, seed=0, engine=MAKERS["pool of vmaps"]())


def main() -> None:
    given = arguments(__doc__)
    sizes, repeats = (QUICK_SIZES, 1) if given.quick else (SIZES, REPEATS)
    repeats, quiet, ratios = given.repeats or repeats, Quiet(), list[float]()
    with ExitStack() as exits:
        runs = [generations(size, repeats + 1) for size in sizes]
        for each in runs:
            exits.enter_context(closing(each))  # type: ignore[type-var]
            next(each)
        for repeat in range(repeats):
            quiet.look()
            turns = [0, 1] if repeat % 2 else [1, 0]
            seconds = {turn: next(runs[turn]).seconds / sizes[turn] for turn in turns}
            ratios.append(seconds[1] / seconds[0])
    name = f"a generation of {sizes[1]:,} networks against {sizes[0]}, for each network"
    row = spread(name, ratios, target=TARGET, at_least=False)
    save(given.out, "thousand", "W1", [row], busy=quiet.worst)


if __name__ == "__main__":
    main()
