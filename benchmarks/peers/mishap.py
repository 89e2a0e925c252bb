"""A population of Ray Tune's in which something goes wrong.

python -m benchmarks.peers.mishap none|kill|diverge [--quick]      (a child; `mishaps.py` starts it)
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from hashlib import sha256
from math import isfinite, nan
from pathlib import Path
from time import perf_counter

from benchmarks.children import Answer, serve
from benchmarks.faults import WORKERS, Tally, population, rates, size
from benchmarks.peers.ray_side import ray_of_its_own
from benchmarks.peers.script import train
from benchmarks.processes import Watch, Written


class Mishap:
    def __init__(self, mishap: str) -> None:
        self.mishap, self.workload = mishap, population()

    def open(self) -> None:
        """Every round opens its own."""

    def round(self) -> Answer:
        written = Written()
        with tempfile.TemporaryDirectory() as folder:
            tally, begun = Tally.of(self.workload, folder, kill=self.mishap == "kill"), perf_counter()
            with Watch(written.look), ray_of_its_own(WORKERS):
                first = rates(self.workload, hot=self.mishap == "diverge")
                results = train(replace(self.workload, loss=tally), f"{folder}/run", first)
            seconds, kept = perf_counter() - begun, size(Path(folder) / "run")
            share, told = tally.share, [file.read_text() for file in Path(folder).rglob("error.txt")]
            reached = [(result.metrics or {}).get("fitness", nan) for result in results]
        return {
            "seconds": seconds,
            "written": written.total,
            "kept": kept,
            "steps": share,
            "fitness": min(filter(isfinite, reached)),
            "digest": sha256(repr(sorted(reached)).encode()).hexdigest(),
            "asked": self.workload.individuals,
            "failed": results.num_errors,
            "finite": sum(map(isfinite, reached)),
            "lost": sum(text.count("Failure #") for text in told),
        }


if __name__ == "__main__":
    serve(lambda: Mishap(sys.argv[1]))
