"""The memory of a whole run of ours: two generations with checkpoints, watched from inside.

    python -m benchmarks.sides.footprint WORKLOAD ENGINE POPULATION OFFSPRING [--quick]      (`memory.py` starts it)

`peak` is the largest sum of the proportional set sizes of this process and its workers, read from /proc every few
milliseconds: memory that several of them share counts once. Linux only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import esgd
from benchmarks.children import Answer, serve
from benchmarks.engines import engine_named
from benchmarks.sides.whole import species
from benchmarks.workloads import Workload, asked_for
from esgd.beginning import prepare
from esgd.run import open_folder

PAUSE = 0.02  # seconds


def family(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has just ended
    members, before = {root}, set[int]()
    while members != before:
        before = set(members)
        members |= {child for child, parent in parents.items() if parent in members}
    return members


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


class Watch:
    """Remembers the peak while it is entered."""

    def __enter__(self) -> Watch:
        self.peak, self._end = 0, Event()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._end.wait(PAUSE):
            self.peak = max(self.peak, in_use(family(os.getpid())))

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()


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
        with Watch() as watch, tempfile.TemporaryDirectory() as path, open_folder(path) as folder:
            for generation in esgd.evolve(self.task, self.recipe, seed=0, engine=engine):
                folder.save(generation.state)
                del generation
        return {"peak": watch.peak, "row": row, "seconds": 0.0}


if __name__ == "__main__":
    serve(lambda: Footprint(asked_for(), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
