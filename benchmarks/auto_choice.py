"""Is a whole run with `engine="auto"` slower than one with `loop`? By at most 5%, was promised.

    python -m benchmarks.auto_choice [--only digits,satimage] [--repeats 3] [--quick]

Our rules on tasks of the arena, with the work of its short budget. Every run has a new process, so that what an engine
costs once counts: starting workers, recording, compiling. Runs alternate: auto, loop, loop, auto. A ratio is the
seconds of `fit` with `loop` over those with `auto`, so that above 1 `auto` is faster. Needs what the arena needs.
"""

from __future__ import annotations

import sys

from benchmarks.children import Answer, Child
from benchmarks.quiet import Quiet
from benchmarks.results import arguments, save, spread

TASKS = ("digits", "satimage", "fashion-mlp", "fashion-cnn", "cifar-cnn", "an4-frames", "an4-bilstm", "treebank")
REPEATS, PATIENCE, TARGET = 3, 600.0, 0.95


def timed(task: str, engine: str, *, quick: bool) -> Answer:
    """One run in a process of its own."""
    child = Child(sys.executable, "benchmarks.sides.fit", [task, engine, *["--quick"] * quick], patience=PATIENCE)
    try:
        child.answer()
        return child.ask("round")
    finally:
        child.close()


def main() -> None:
    given = arguments(__doc__)
    for task in given.only or (TASKS[:1] if given.quick else TASKS):
        quiet, rounds = Quiet(), []
        for _ in range(given.repeats or (1 if given.quick else REPEATS)):
            quiet.look()
            rounds.append([timed(task, engine, quick=given.quick) for engine in ("auto", "loop", "loop", "auto")])
        ratios = [(b["seconds"] + c["seconds"]) / (a["seconds"] + d["seconds"]) for a, b, c, d in rounds]
        auto = [each["seconds"] for a, _, _, d in rounds for each in (a, d)]
        save(
            given.out,
            "auto",
            task,
            [
                spread("auto against loop, a whole run", ratios, target=TARGET),
                spread("a whole run with auto", auto, unit="s"),
            ],
            engine=rounds[0][0]["engine"],
            fitness=[each["fitness"] for four in rounds for each in four],
            busy=quiet.worst,
        )


if __name__ == "__main__":
    main()
