"""How does the cost of a generation grow with μ, λ, the number of parameters and the data? Linearly, or better.

    python -m benchmarks.growth [--only population] [--repeats 3] [--quick]

From one base, each quantity is doubled three times, the others held. The runs of a quantity are open side by side, all
with the same engine, a pool of loops, and a repeat takes one generation of each in turn; their first generation warms
up. Early abort is off, so that every offspring is evaluated to the end: the worst case. The exponent is that of seconds
~ size^exponent between the smallest and the largest size; 1 is linear.

*work* is for the default rules, whose populations shrink: a whole `fit` by them for each amount of work, in a process
that has done one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from math import log
from statistics import median
from time import perf_counter

from torch.nn import functional as F

import esgd
from benchmarks.engines import MAKERS
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from benchmarks.sides.whole import species
from benchmarks.workloads import mlp, taught

FACTORS, REPEATS, EPOCHS, BATCH, FITNESS = (1, 2, 4, 8), 3, 1, 128, 512
BASE = {"population": 16, "offspring": 64, "width": 64, "samples": 1536}
QUICK_BASE = {"population": 2, "offspring": 2, "width": 4, "samples": 128}
SHOWN = {
    "population": "μ, individuals",
    "offspring": "λ, offspring",
    "width": "parameters (width of the hidden layer)",
    "samples": "training samples",
    "work": "work of the default rules, samples",
}
TARGET = 1.05
"""Linear, within what two measurements of the same thing differ by."""
WORK, QUICK_WORK = 2e6, 1e5
"""The smallest amount, in the ledger's samples."""
PARTS = (*BASE, "work")


def classify(samples: int, width: int) -> esgd.Supervised:
    """Images of 784 numbers for a network with one hidden layer."""
    x, y = taught(samples + FITNESS, shape=(784,), classes=10)
    return esgd.Supervised(
        partial(mlp, 784, width, 10),
        F.cross_entropy,
        train=(x[:samples], y[:samples]),
        fitness=(x[samples:], y[samples:]),
        batch_size=BATCH,
    )


def run(*, population: int, offspring: int, width: int, samples: int, generations: int) -> Iterator[esgd.Generation]:
    """Generations of one size."""
    recipe = esgd.Recipe(
        population=population,
        offspring=offspring,
        generations=generations,
        sgd_epochs=EPOCHS,
        species=species,
        early_abort=False,
    )
    return esgd.evolve(classify(samples, width), recipe, seed=0, engine=MAKERS["pool of loops"]())


def measured(quantity: str, repeats: int, base: dict[str, int], quiet: Quiet) -> tuple[list[int], list[list[float]]]:
    """The sizes, and the seconds of a generation at each: one list for every repeat."""
    sizes = [base[quantity] * factor for factor in FACTORS]
    with ExitStack() as exits:
        runs = [run(**{**base, quantity: size}, generations=repeats + 1) for size in sizes]
        for each in runs:
            exits.enter_context(closing(each))  # type: ignore[type-var]
            next(each)
        seconds = []
        for _ in range(repeats):
            quiet.look()
            seconds.append([next(each).seconds for each in runs])
        return sizes, seconds


def whole_runs(base: dict[str, int], work: float, repeats: int, quiet: Quiet) -> tuple[list[int], list[list[float]]]:
    """Amounts of work, and the seconds of a whole run by the default rules with each."""
    task, works = classify(base["samples"], base["width"]), [round(work * factor) for factor in FACTORS]

    def seconds(samples: int) -> float:
        begun = perf_counter()
        esgd.fit(task, budget=esgd.Work(samples=samples), seed=0, engine="loop:threads=1", progress=False)
        return perf_counter() - begun

    seconds(works[0])  # whatever is imported or found for the first time
    found = list[list[float]]()
    for _ in range(repeats):
        quiet.look()
        found.append([seconds(each) for each in works])
    return works, found


def main() -> None:
    given = arguments(__doc__)
    base, repeats = (QUICK_BASE, 1) if given.quick else (BASE, REPEATS)
    repeats = given.repeats or repeats
    for quantity in given.only or PARTS:
        quiet = Quiet()
        if quantity == "work":
            sizes, seconds = whole_runs(base, QUICK_WORK if given.quick else WORK, repeats, quiet)
        else:
            sizes, seconds = measured(quantity, repeats, base, quiet)
        exponents = [log(times[-1] / times[0]) / log(FACTORS[-1]) for times in seconds]
        what = "a run's cost" if quantity == "work" else "a generation's cost"
        name = f"exponent of {what} in {SHOWN[quantity]}"
        save(
            given.out,
            "growth",
            quantity,
            [spread(name, exponents, unit="", target=TARGET, at_least=False)],
            busy=quiet.worst,
            shown=SHOWN[quantity],
            base=base,
            sizes=sizes,
            seconds=[median(times) for times in zip(*seconds, strict=True)],
            low=[min(times) for times in zip(*seconds, strict=True)],
            high=[max(times) for times in zip(*seconds, strict=True)],
        )


if __name__ == "__main__":
    main()
