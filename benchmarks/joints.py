"""What do the joints of rules cost: a look on the way, an average, an anchor, an end that is kept?

    python -m benchmarks.joints [--only look,mean] [--repeats 3] [--quick]

Generations of four individuals of W3's network, whose row is 10 MB, each run in a process of its own. In every round
each joint runs once and is held against the plain run of that round: seconds of a generation as a ratio, and what the
peak of memory is higher, in rows. A look or an average also costs one fitness pass, which is part of the seconds.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

import esgd
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread
from benchmarks.sides.whole import species
from benchmarks.workloads import WORKLOADS
from esgd.operators import Anchor, BestOfLooks, Carried, Uninterrupted, trajectories

INDIVIDUALS, FITNESS, GENERATIONS, REPEATS = 4, 1024, 4, 3
PLAIN = BestOfLooks(looks=(), mean=0.0)  # the best of start and end
JOINTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "look": {"backoff": BestOfLooks(looks=(0.5,), mean=0.0)},
    "mean": {"backoff": BestOfLooks(looks=(), mean=0.5)},
    "ema": {"backoff": BestOfLooks(looks=(), mean=0.0, ema=1.0)},
    "anchor": {"anchor": Anchor(after=0)},
    "carried": {"baggage": Carried()},
    "uninterrupted": {"baggage": Uninterrupted()},
    "ends": {"baggage": Uninterrupted(), "mates_from": trajectories},
}


def cost(joint: str, quick: bool) -> tuple[float, float]:  # noqa: FBT001
    """Median seconds of a generation after the first, and the peak of memory in rows."""
    torch.set_num_threads(1)
    workload = WORKLOADS["W3"].tiny() if quick else WORKLOADS["W3"]
    train, fitness = workload.data(FITNESS)
    task = esgd.Supervised(workload.make_model, workload.loss, train=train, fitness=fitness, batch_size=workload.batch)
    recipe = esgd.Recipe(
        **{
            "population": INDIVIDUALS,
            "offspring": INDIVIDUALS,
            "generations": 2 if quick else GENERATIONS,
            "sgd_epochs": 1,
            "species": species,
            "backoff": PLAIN,
            **JOINTS[joint],
        }
    )
    seconds = [each.seconds for each in esgd.evolve(task, recipe, seed=0, engine="loop:threads=1")]
    row = 4 * sum(parameter.numel() for parameter in workload.make_model().parameters())
    return median(seconds[1:]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / row


def main() -> None:
    given = arguments(__doc__)
    names = ["plain", *(name for name in given.only or JOINTS if name != "plain")]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    quiet, context = Quiet(), multiprocessing.get_context("spawn")
    for _ in range(given.repeats or (1 if given.quick else REPEATS)):
        for name in names:
            with context.Pool(1) as child:
                found[name].append(child.apply(cost, (name, given.quick)))
            quiet.look()
    for name in names[1:]:
        pairs = list(zip(found[name], found["plain"], strict=True))
        ratios = [seconds / plain for (seconds, _), (plain, _) in pairs]
        rows = [(peak - plain) / INDIVIDUALS for (_, peak), (_, plain) in pairs]
        save(
            given.out,
            "joints",
            name,
            [
                spread("seconds of a generation, against one without it", ratios),
                spread("memory for each individual", rows, unit="rows"),
            ],
            about=f"{INDIVIDUALS} individuals of W3, one epoch a generation",
            busy=quiet.worst,
        )


if __name__ == "__main__":
    main()
