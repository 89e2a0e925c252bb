"""What becomes of a population when a worker is killed or an individual diverges, with us and with Ray Tune's PBT?

    python -m benchmarks.mishaps [--only none,kill,diverge,code] [--repeats 1] [--quick]

16 MLPs on digits, 3 generations of 20 epochs, two workers of Ray, three runs of each method:

- *none*: nothing goes wrong.
- *kill*: the process that takes the middle one of all SGD steps is killed (SIGKILL).
- *diverge*: the first individual's learning rate is 1e20: for ours in every generation, for PBT until it is replaced.
- *code*: the lines of `sides/script.py` and `peers/script.py`, which are what runs above and what a user would write.

Seconds include the start of Ray on both sides. A side that has not answered after five minutes is ended, and the
results say so.
"""

from __future__ import annotations

import argparse
import io
import sys
import tokenize
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.children import ROOT, Answer, Child, SideError
from benchmarks.faults import INDIVIDUALS, WORKERS
from benchmarks.quiet import Quiet
from benchmarks.results import Row, arguments, save, spread
from benchmarks.workloads import GENERATION_EPOCHS, GENERATIONS

PATIENCE = 300.0
SIDES = {"esgd": "benchmarks.sides", "Ray Tune PBT": "benchmarks.peers"}
QUANTITIES = {"seconds": "s", "written": "bytes", "kept": "bytes", "steps": "×", "fitness": ""}
ABOUT = (
    f"{INDIVIDUALS} MLPs 64-32-10 on digits, {GENERATIONS} generations of {GENERATION_EPOCHS} epochs, "
    f"{WORKERS} workers of Ray"
)
LAYOUT = {tokenize.ENCODING, tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(text: str) -> int:
    """Lines that say something to the machine: blank ones, comments and docstrings are for people.

    >>> lines_of_code('"Why."\\n\\nx = [  # some\\n    1,\\n]\\n')
    3
    """
    lines, fresh = set[int](), True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        says = token.type not in LAYOUT | {tokenize.COMMENT}
        if says and not (fresh and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        fresh = not says and (fresh or token.type == tokenize.NEWLINE)
    return len(lines)


def told(python: str | Path, module: str, mishap: str, quick: list[str]) -> Answer:
    """What a side tells of one run; of one that did not end, only that."""
    child = Child(python, module, [mishap, *quick], patience=PATIENCE)
    try:
        child.answer()
        return child.ask("round")
    except SideError as error:
        return {"error": str(error)}
    finally:
        child.close()


def rows(name: str, answers: list[Answer]) -> list[Row]:
    """A row for every quantity of the runs that ended."""
    ended = [answer for answer in answers if "error" not in answer]
    return [
        spread(f"{name}: {quantity}", [answer[quantity] for answer in ended], unit=unit)
        for quantity, unit in QUANTITIES.items()
        if ended
    ]


def runs(mishap: str, given: argparse.Namespace) -> None:
    """One run of each method, as often as is asked for."""
    quick, quiet = ["--quick"] if given.quick else [], Quiet()
    pythons, answers = (sys.executable, given.peers), {name: list[Answer]() for name in SIDES}
    for _ in range(given.repeats or 1):
        for python, (name, package) in zip(pythons, SIDES.items(), strict=True):
            quiet.look()
            answers[name].append(told(python, f"{package}.mishap", mishap, quick))
    measured = [row for name, some in answers.items() for row in rows(name, some)]
    save(given.out, "mishaps", mishap, measured, about=ABOUT, busy=quiet.worst, answers=answers)


def code(given: argparse.Namespace) -> None:
    scripts = {name: ROOT / package.replace(".", "/") / "script.py" for name, package in SIDES.items()}
    counts = {name: lines_of_code(path.read_text(encoding="utf-8")) for name, path in scripts.items()}
    counted = [spread(name, [count], unit="lines") for name, count in counts.items()]
    save(given.out, "mishaps", "code", counted, about="network, loss and data aside")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    **{mishap: partial(runs, mishap) for mishap in ("none", "kill", "diverge")},
    "code": code,
}


def main() -> None:
    given = arguments(__doc__)
    if not Path(given.peers).is_file():
        print("The peers' environment is missing; `make bench` creates it. Without it there is nothing to compare.")
        return
    for part in given.only or PARTS:
        PARTS[part](given)


if __name__ == "__main__":
    main()
