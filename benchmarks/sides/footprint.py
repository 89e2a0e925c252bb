"""The memory of a whole run of ours: two generations with checkpoints, watched from inside.

    python -m benchmarks.sides.footprint WORKLOAD ENGINE POPULATION OFFSPRING [--quick]      (`memory.py` starts it)

`peak` is the largest sum of the proportional set sizes of this process and its workers, read from /proc every few
milliseconds: memory that several of them share counts once. Linux only.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import esgd
from benchmarks.children import Answer, serve
from benchmarks.engines import engine_named
from benchmarks.processes import Watch
from benchmarks.sides.whole import species
from benchmarks.workloads import Workload, asked_for
from esgd._algorithm.initialization import prepare
from esgd.run import open_folder

PAUSE = 0.02  # seconds


def in_use(processes: set[int]) -> int:
    """Bytes of physical memory, shared pages in proportion."""
    total = 0
    for number in processes:
        try:
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


class Peak:
    """The most memory that was seen in use."""

    def __init__(self) -> None:
        self.bytes = 0

    def look(self, processes: set[int]) -> None:
        self.bytes = max(self.bytes, in_use(processes))


class Footprint:
    def __init__(self, workload: Workload, engine: str, population: int, offspring: int) -> None:
        small = replace(workload, samples=2 * workload.batch)
        train, fitness = small.data()
        self.task = esgd.Supervised(small.make_model, small.loss, train=train, fitness=fitness, batch_size=small.batch)
        self.recipe = esgd.Recipe(
            population=population, offspring=offspring, generations=2, sgd_epochs=1, species=species
        )
        self.engine = engine

    def open(self) -> None:
        """Every round opens its own."""

    def round(self) -> Answer:
        rules = prepare(self.task, self.recipe, 0)
        engine, row = (
            engine_named(self.engine, rules, self.recipe.population),
            rules.genome.size * rules.genome.dtype.itemsize,
        )
        del rules
        peak = Peak()
        with Watch(peak.look, pause=PAUSE), tempfile.TemporaryDirectory() as path, open_folder(path) as folder:
            for generation in esgd.evolve(self.task, self.recipe, seed=0, engine=engine):
                folder.save(generation.state, run="benchmark")
                del generation
        return {"peak": peak.bytes, "row": row, "seconds": 0.0}


if __name__ == "__main__":
    serve(lambda: Footprint(asked_for(), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
