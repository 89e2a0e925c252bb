"""Does a generation take longer the more generations there were before it? It must not.

    python -m benchmarks.long_runs [--repeats 1] [--quick]

2,000 generations of a network of ten parameters, through `fit()`, with a run folder and a tracker that only looks at
the clock. The first tenth of the generations is held against the last; the very first ones warm up and are left out. On
so small a network everything but training is visible: breeding, records, history and checkpoint.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from benchmarks.workloads import taught
from esgd.progress.tracking import Tracked

GENERATIONS, QUICK_GENERATIONS, WARM_UP, TARGET = 2000, 20, 5, 1.05


class Clock:
    """A tracker that remembers when each generation ended."""

    where, done = "this process", 0

    def __init__(self) -> None:
        self.ends: list[float] = []

    def open(self, run: Tracked) -> Clock:
        return self

    def write(self, record: object) -> None:
        self.ends.append(perf_counter())

    def close(self, model: Path | None) -> None:
        pass


def seconds(generations: int) -> list[float]:
    """How long each generation took, but for the first."""
    x, y = taught(32, shape=(4,), classes=2)
    task = esgd.Supervised(partial(nn.Linear, 4, 2), F.cross_entropy, train=(x, y), fitness=(x, y), batch_size=32)
    recipe = esgd.Recipe(population=2, offspring=2, elites=1, generations=generations, sgd_epochs=1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        esgd.fit(task, recipe, seed=0, run=run, engine="loop", progress=False, trackers=[clock], report=False)
    return [end - begun for begun, end in zip(clock.ends, clock.ends[1:], strict=False)]


def main() -> None:
    given = arguments(__doc__)
    torch.set_num_threads(1)
    generations, quiet, firsts, lasts = QUICK_GENERATIONS if given.quick else GENERATIONS, Quiet(), [], []
    for _ in range(given.repeats or 1):
        quiet.look()
        took, part = seconds(generations), generations // 10
        firsts.append(median(took[WARM_UP : WARM_UP + part]))
        lasts.append(median(took[-part:]))
    ratios = [last / first for first, last in zip(firsts, lasts, strict=True)]
    save(
        given.out,
        "length",
        f"{generations} generations",
        [spread("a generation at the end against one at the beginning", ratios, target=TARGET, at_least=False)],
        busy=quiet.worst,
        first=firsts,
        last=lasts,
    )


if __name__ == "__main__":
    main()
