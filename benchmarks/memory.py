"""How much memory does a population take, and does it depend on the number of offspring?

    python -m benchmarks.memory [--only "pool of loops,ray of two"] [--quick]

Whole generations with checkpoints of W3's network, whose row is 10 MB, each in a process of its own, workers included
(`sides/footprint.py`). Constant costs (torch, the data, workers, the activations of a batch) are the same in every
process, so what counts is the slope: rows that are added to the peak by one more individual with its four offspring,
and by one more offspring alone. Births are recipes, not networks: the second should be nothing. The steepest piece is
shown, since a small population can hide below what starting up takes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from benchmarks.children import Child
from benchmarks.results import Row, arguments, save

PATIENCE = 300.0
POPULATIONS, OFFSPRING, FIXED = (16, 32, 64), (16, 64, 128), 16
QUICK_POPULATIONS, QUICK_OFFSPRING, QUICK_FIXED = (2, 4), (2, 8), 2
TARGETS = {"pool of loops": 2.0, "loop on one thread": 1.6, "ray of two": 2.0}


@cache  # the two series have a run in common
def footprint(engine: str, population: int, offspring: int, *quick: str) -> tuple[int, int]:
    """Peak bytes of a run, and the bytes of a row."""
    places = [str(population), str(offspring)]
    child = Child(sys.executable, "benchmarks.sides.footprint", ["W3", engine, *places, *quick], patience=PATIENCE)
    try:
        child.answer()
        answer = child.ask("round")
    finally:
        child.close()
    return answer["peak"], answer["row"]


def slopes(sizes: Sequence[int], rows: Sequence[float]) -> list[float]:
    """Rows per step of size, from each size to the next."""
    points = pairwise(zip(sizes, rows, strict=True))
    return [(after - before) / (larger - smaller) for (smaller, before), (larger, after) in points]


def steepest(name: str, found: Sequence[float], **rest: Any) -> Row:
    """The largest of the slopes counts: where constant costs hide the rows, a line through all would flatter."""
    return Row(name=name, value=max(found), low=min(found), high=max(found), unit="rows", **rest)


def main() -> None:
    given = arguments(__doc__)
    quick = ["--quick"] if given.quick else []
    populations, offspring, fixed = (
        (QUICK_POPULATIONS, QUICK_OFFSPRING, QUICK_FIXED) if given.quick else (POPULATIONS, OFFSPRING, FIXED)
    )
    for engine in given.only or TARGETS:
        by_population = [footprint(engine, mu, 4 * mu, *quick) for mu in populations]
        by_offspring = [footprint(engine, fixed, count, *quick) for count in offspring]
        rows_mu = [peak / row for peak, row in by_population]
        rows_lambda = [peak / row for peak, row in by_offspring]
        name = "rows at the peak for one more individual and its offspring"
        save(
            given.out,
            "memory",
            engine,
            [
                steepest(name, slopes(populations, rows_mu), target=TARGETS.get(engine), at_least=False),
                steepest("rows at the peak for one more offspring", slopes(offspring, rows_lambda)),
            ],
            row_bytes=by_population[0][1],
            by_population={"population": populations, "peak_bytes": [peak for peak, _ in by_population]},
            by_offspring={
                "population": fixed,
                "offspring": offspring,
                "peak_bytes": [peak for peak, _ in by_offspring],
            },
        )


if __name__ == "__main__":
    main()
