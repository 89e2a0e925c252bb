"""What does Ray cost beside a pool on one machine, what does its driver cost, and what does a lost node cost?

    python -m benchmarks.cluster [--only W3,driver,prediction,recovery] [--repeats 5] [--quick]

- *W3*: the SGD step of a population by Ray(workers=2) and by Pool(workers=2), both warm, in turn.
- *driver*: processor time of the driver in a whole generation of tiny networks, divided by μ: 1,000 individuals, 4,000
  births. Everything that is not done by workers is in it: breeding, letters, selection, the history.
- *prediction*: a generation on 1, 2 and 3 workers, as `esgd explain --workers` predicts it, divided by what it took.
- *recovery*: one worker on a cluster of this machine's own, whose node is killed in the middle of an individual while
  another node is free. What the SGD step takes longer than a quiet one, less the work that was lost with the node:
  noticing it, and starting another worker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.children import Answer, Child
from benchmarks.quiet import Quiet
from benchmarks.results import Row, arguments, save, spread
from benchmarks.speed import ratios
from benchmarks.workloads import WORKLOADS
from esgd.engines.computing import cores

REPEATS, PATIENT, PREDICTED = 5, 300.0, (1, 2, 3)
POOL_TARGET, DRIVER_TARGET, RECOVERY_TARGET = 0.9, 2.0, 15.0


def asked(sides: Sequence[tuple[str, ...]], given: argparse.Namespace) -> tuple[list[list[Answer]], float | None]:
    """What each side answers in every repeat, all sides in turn, and how busy others were."""
    quick = ["--quick"] if given.quick else []
    with ExitStack() as exits:
        children = [Child(sys.executable, side, [*rest, *quick], patience=PATIENT) for side, *rest in sides]
        for child in children:
            exits.callback(child.close)
            child.answer()
        for child in children:
            child.ask("open")
        quiet, answers = Quiet(), []
        for repeat in range(given.repeats or (1 if given.quick else REPEATS)):
            quiet.look()
            order = children if repeat % 2 else children[::-1]
            told = {id(child): child.ask("round") for child in order}
            answers.append([told[id(child)] for child in children])
        return answers, quiet.worst


def against_pool(given: argparse.Namespace) -> None:
    ours = "benchmarks.sides.ours"
    answers, busy = asked([(ours, "W3", "pool of two"), (ours, "W3", "ray of two")], given)
    pool, ray = ([answer["seconds"] for answer in side] for side in zip(*answers, strict=True))
    row = spread("Ray(workers=2) against Pool(workers=2)", ratios(pool, ray), target=POOL_TARGET)
    keep("W3", WORKLOADS["W3"].about, [row], given, busy, pool=pool, ray=ray)


def driver(given: argparse.Namespace) -> None:
    answers, busy = asked([("benchmarks.sides.driver",)], given)
    about = "driver's processor time for each individual of a generation"
    spent = [answer["milliseconds"] for (answer,) in answers]
    row = spread(about, spent, unit="ms", target=DRIVER_TARGET, at_least=False)
    keep("driver", "MLP 4-2, μ = 1,000, λ = 4,000, two workers", [row], given, busy)


def recovery(given: argparse.Namespace) -> None:
    answers, busy = asked([("benchmarks.sides.recovery",)], given)
    beyond = [answer["seconds"] - answer["quiet"] - answer["lost"] for (answer,) in answers]
    row = spread("a killed node, beyond the lost work", beyond, unit="s", target=RECOVERY_TARGET, at_least=False)
    keep("recovery", "one worker, its node killed, another node free", [row], given, busy, answers=answers)


def prediction(given: argparse.Namespace) -> None:
    answers, busy = asked([("benchmarks.sides.predicted", str(count)) for count in PREDICTED], given)
    rows = [
        spread(f"predicted by measured, {count} workers", [answer["ratio"] for answer in side])
        for count, side in zip(PREDICTED, zip(*answers, strict=True), strict=True)
    ]
    moved = [answer["bytes_ratio"] for side in answers for answer in side]
    rows.append(spread("bytes moved, predicted by counted", moved))
    about = f"MLP 784-128-64-10, μ = 12, λ = 48; there are {cores()} cores, so more workers share them"
    keep("prediction", about, rows, given, busy, answers=answers)


def keep(
    part: str, about: str, rows: Sequence[Row], given: argparse.Namespace, busy: float | None, **details: object
) -> None:
    save(given.out, "cluster", part, rows, about=about, busy=busy, **details)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "W3": against_pool,
    "driver": driver,
    "prediction": prediction,
    "recovery": recovery,
}


def main() -> None:
    given = arguments(__doc__)
    for part in given.only or PARTS:
        PARTS[part](given)


if __name__ == "__main__":
    main()
