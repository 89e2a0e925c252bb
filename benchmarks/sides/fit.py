"""One `fit` by our rules on a task of the arena, with all that it does for a user who keeps nothing on disk.

python -m benchmarks.sides.fit TASK ENGINE [--quick]      (a child; `auto_choice.py` starts it)
"""

from __future__ import annotations

import sys
from time import perf_counter

import esgd
from benchmarks.arena.compete import work_of
from benchmarks.arena.tasks import CONTESTS
from benchmarks.children import Answer, serve

QUICK_SHARE = 0.5


class Fit:
    def __init__(self, task: str, engine: str, share: float) -> None:
        self.task, self.engine = CONTESTS[task].task(0), engine
        self.work = esgd.Work(samples=round(share * work_of(task, self.task, "short")))

    def open(self) -> None:
        """Every round opens its own."""

    def round(self) -> Answer:
        begun = perf_counter()
        result = esgd.fit(self.task, budget=self.work, seed=0, engine=self.engine, progress=False)
        return {"seconds": perf_counter() - begun, "fitness": result.fitness, "engine": repr(result.engine)}


if __name__ == "__main__":
    serve(lambda: Fit(sys.argv[1], sys.argv[2], QUICK_SHARE if "--quick" in sys.argv else 1.0))
