"""How fast is the SGD step of a population? Ours against the plain loop, against JAX, and against the machine.

    python -m benchmarks.speed [--only W1,W2] [--sides plain,auto] [--repeats 7] [--quick]

Every side is a process of its own that trains the same population once when it is asked (`children.py`). A repeat asks
all sides in turn, and every ratio is of two times from the same repeat, so that a machine that is slow for a while is
slow for both. The first round of a side, with everything it starts, traces or compiles, is not in the ratios: it is
the one-off cost. A side whose round takes more than `PATIENT` seconds is asked `FEW` times only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.children import Answer, Child, SideError
from benchmarks.engines import OURS
from benchmarks.limits import WIDTHS, operations
from benchmarks.quiet import Quiet
from benchmarks.results import Row, arguments, save, spread
from benchmarks.workloads import WORKLOADS, Workload

REPEATS, FEW, PATIENT = 5, 2, 8.0
PROBING = 300.0
"""Seconds that "auto" may take to count, try and compile before its first round; they are in its one-off cost."""
JAX = ("jax vmap", "jax scan", "jax step")
SIDES = ("plain", *OURS, *JAX, "gemm")

PLAIN_TARGETS = {"W1": 6.0, "W2": 1.5, "W2x100": 1.5, "W3": 1.3, "W4": 1.6, "W5": 1.8, "W6": 1.3}
GEMM_TARGETS = {"W3": 0.85}
JAX_TARGETS = {"W1": 1.2, "W2": 1.1, "W2x100": 1.1, "W3": 1.1, "W4": 2.5}
"""JAX has programs for these."""

Times = Mapping[str, Sequence[float]]
"""Side → seconds of its rounds; the n-th of two sides were taken in the same repeat."""


def start(side: str, workload: str, given: argparse.Namespace) -> Child:
    """The process of a side."""
    quick = ["--quick"] if given.quick else []
    if side in JAX:
        child = given.peers, "benchmarks.peers.jax_side", [workload, side.removeprefix("jax "), *quick]
    elif side in OURS:
        child = sys.executable, "benchmarks.sides.ours", [workload, side, *quick]
    else:
        module = "benchmarks.limits" if side == "gemm" else "benchmarks.sides.plain"
        child = sys.executable, module, [workload, *quick]
    return Child(*child, patience=PROBING if side == "auto" else given.patience)


def sides_for(workload: str, given: argparse.Namespace) -> list[str]:
    """Those that know this workload, that are wanted, and whose environment is there."""
    peers = JAX if workload in JAX_TARGETS and Path(given.peers).is_file() else ()
    known = ("plain", *OURS, *peers, *(("gemm",) if workload in WIDTHS else ()))
    return [side for side in known if not given.sides or side in given.sides]


@dataclass
class Measured:
    """Answers of every side's rounds, seconds of its first use, why others are missing, and how busy others were."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    busy: float | None = None


def measure(workload: str, given: argparse.Namespace) -> Measured:
    """Every side in turn, as often as asked."""
    found = Measured()
    answers, first, missing = found.answers, found.first, found.missing
    with ExitStack() as exits:
        children = {side: start(side, workload, given) for side in sides_for(workload, given)}
        for child in children.values():
            exits.callback(child.close)
        for side, child in children.items():
            try:
                child.answer()  # it is there: imported, data ready
            except SideError as error:
                missing[side] = str(error)
        present = [side for side in children if side not in missing]
        for side in present:
            try:
                first[side], answers[side] = children[side].ask("open")["seconds"], []
            except SideError as error:
                missing[side] = str(error)
        quiet = Quiet()
        for repeat in range(given.repeats):
            quiet.look()
            asked = [side for side in present if side in answers and (repeat < FEW or not slow(answers[side]))]
            turn = repeat % len(asked)
            for side in asked[turn:] + asked[:turn]:
                try:
                    answers[side].append(children[side].ask("round"))
                except SideError as error:
                    missing[side] = str(error)
                    del answers[side]
        found.busy = quiet.worst
    return found


def slow(told: Sequence[Answer]) -> bool:
    return min(answer["seconds"] for answer in told) > PATIENT


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Repeat by repeat, as far as both were measured."""
    return [a / b for a, b in zip(above, below, strict=False)]


def rows(workload: Workload, times: Times, rates: Sequence[float]) -> list[Row]:
    """Every ratio that these times allow; above 1 the first-named is the faster."""
    found = []
    if "plain" in times:
        for side in times:
            if side not in ("plain", "gemm"):
                target = PLAIN_TARGETS[workload.name] if side == "auto" else None
                found.append(
                    spread(f"{side} against the plain loop", ratios(times["plain"], times[side]), target=target)
                )
    jax = [times[side] for side in JAX if side in times]
    if "auto" in times and jax:
        best = [min(each) for each in zip_longest(*jax, fillvalue=inf)]  # who is slow was asked less often
        found.append(
            spread("auto against the best of JAX", ratios(best, times["auto"]), target=JAX_TARGETS[workload.name])
        )
    for side in ("plain", "auto"):
        if side in times and rates:
            work, target = operations(workload), GEMM_TARGETS.get(workload.name) if side == "auto" else None
            shares = [work / seconds / rate for seconds, rate in zip(times[side], rates, strict=False)]
            found.append(spread(f"{side}: share of the machine's matrix rate", shares, unit="", target=target))
    return found


def own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sides", default="", help=f"some of: {', '.join(SIDES)}")
    parser.add_argument("--patience", type=float, default=45.0, help="seconds to wait for one answer")


def main() -> None:
    given = arguments(__doc__, own_options)
    given.sides = tuple(filter(None, (side.strip() for side in given.sides.split(","))))
    given.repeats = given.repeats or (2 if given.quick else REPEATS)
    for name in given.only or WORKLOADS:
        workload = WORKLOADS[name].tiny() if given.quick else WORKLOADS[name]
        found = measure(name, given)
        answers = found.answers
        times = {side: [answer["seconds"] for answer in told] for side, told in answers.items()}
        rates = [answer["flops"] for answer in answers.get("gemm", ())]
        save(
            given.out,
            "speed",
            name,
            rows(workload, times, rates),
            about=workload.about,
            seconds=times,
            one_off={side: max(0.0, found.first[side] - median(times[side])) for side in times},
            missing=found.missing,
            busy=found.busy,
            gemm_rate=max(rates, default=None),
            engine=answers["auto"][0].get("engine") if answers.get("auto") else None,
        )


if __name__ == "__main__":
    main()
