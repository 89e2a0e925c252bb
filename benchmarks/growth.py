"""How does the cost of a generation grow with μ, λ, the number of parameters and the data? Linearly, or better.

    python -m benchmarks.growth [--only population] [--repeats 3] [--quick]

From one base, each quantity is doubled three times, the others held. The runs of a quantity are open side by side, all
with the same engine, a pool of loops, and a repeat takes one generation of each in turn; their first generation warms
up. Early abort is off, so that every offspring is evaluated to the end: the worst case. The exponent is that of seconds
~ size^exponent between the smallest and the largest size; 1 is linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from math import log
from statistics import median

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
}
TARGET = 1.05
"""Linear, within what two measurements of the same thing differ by."""


def run(*, population: int, offspring: int, width: int, samples: int, generations: int) -> Iterator[esgd.Generation]:
    """Generations of one size."""
    x, y = taught(samples + FITNESS, shape=(784,), classes=10)
    task = esgd.Supervised(
        partial(mlp, 784, width, 10),
        F.cross_entropy,
        train=(x[:samples], y[:samples]),
        fitness=(x[samples:], y[samples:]),
        batch_size=BATCH,
    )
    recipe = esgd.Recipe(
        population=population,
        offspring=offspring,
        generations=generations,
        sgd_epochs=EPOCHS,
        species=species,
        early_abort=False,
    )
    return esgd.evolve(task, recipe, seed=0, engine=MAKERS["pool of loops"]())


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


def main() -> None:
    given = arguments(__doc__)
    base, repeats = (QUICK_BASE, 1) if given.quick else (BASE, REPEATS)
    for quantity in given.only or BASE:
        quiet = Quiet()
        sizes, seconds = measured(quantity, given.repeats or repeats, base, quiet)
        exponents = [log(times[-1] / times[0]) / log(FACTORS[-1]) for times in seconds]
        name = f"exponent of a generation's cost in {SHOWN[quantity]}"
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
