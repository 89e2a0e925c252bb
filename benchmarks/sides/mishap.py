"""A population of ours in which something goes wrong.

python -m benchmarks.sides.mishap none|kill|diverge [--quick]      (a child; `mishaps.py` starts it)
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import esgd
from benchmarks.children import Answer, serve
from benchmarks.faults import HOT, Tally, population, size
from benchmarks.processes import Watch, Written
from benchmarks.sides.script import species, train
from esgd._serialization import digest
from esgd.protocols import Draw


def hot(draw: Draw) -> esgd.Policy:
    """As ever, except that the first individual's learning rate is absurd, in every generation."""
    policy = species(draw)
    return replace(policy, hyper={**policy.hyper, "lr": HOT}) if draw.j == 0 else policy


class Mishap:
    def __init__(self, mishap: str) -> None:
        self.mishap, self.workload = mishap, population()

    def open(self) -> None:
        """Every round opens its own."""

    def round(self) -> Answer:
        written = Written()
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tally, begun = Tally.of(self.workload, folder, kill=self.mishap == "kill"), perf_counter()
            with Watch(written.look):
                drawn = hot if self.mishap == "diverge" else species
                result = train(replace(self.workload, loss=tally), f"{folder}/run", drawn)
            seconds, kept, share = perf_counter() - begun, size(Path(folder) / "run"), tally.share
        return {
            "seconds": seconds,
            "written": written.total,
            "kept": kept,
            "steps": share,
            "fitness": result.fitness,
            "digest": digest({"rows": result.population.rows}),
            "asked": self.workload.individuals,
            "failed": self.workload.individuals - len(result.population),
            "finite": int(result.population.fitness.isfinite().sum()),
            "lost": sum("was lost" in str(each.message) for each in said),
            "undone": sum(line["diverged"] for line in result.history),
        }


if __name__ == "__main__":
    serve(lambda: Mishap(sys.argv[1]))
