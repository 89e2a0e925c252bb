"""Run the arena: `make arena`, or

    python -m benchmarks.arena [--tasks digits,satimage] [--arms ours,pbt] [--budgets short] [--seeds 5] [--quick]

Every arm has the same work in samples forward and backward, fitness passes included, and pays for its own tuning out of
it. The network is the fittest ever seen; test losses choose nothing. Rules were chosen on seeds from 100 on; seeds from
20 on are fresh. What was run is not run again, so an interrupted arena continues.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.arena.arms import ARMS, HINDSIGHT, VARIANTS
from benchmarks.arena.compete import BUDGETS, compete
from benchmarks.arena.page import draw, insert, tables
from benchmarks.arena.tasks import CONTESTS
from benchmarks.children import ROOT

FRESH, TUNING = 20, 100
VARIED = ("digits", "texture", "fashion-cnn")
"""Where the parts of our rules are left out one by one, with the short budget."""

QUICK_TASKS, QUICK_SHARE = ("digits", "satimage"), 0.5
Job = tuple[str, str, int, str]


def jobs(given: argparse.Namespace) -> Iterator[Job]:
    """Seed by seed, so that an interrupted arena has something of every task."""
    for seed in range(given.first, given.first + given.seeds):
        for task in given.tasks.split(","):
            for budget in given.budgets.split(","):
                variants = VARIANTS if task in VARIED else ()
                more = (*HINDSIGHT, *variants) if budget == "short" else ()
                for arm in given.arms.split(",") if given.arms else (*ARMS, *more):
                    yield task, arm, seed, budget


def main() -> None:
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    done = {(each["task"], each["arm"], each["seed"], each["budget"]) for each in results}
    waiting = iter([job for job in jobs(given) if job not in done])
    with (
        ProcessPoolExecutor(given.processes, mp_context=multiprocessing.get_context("spawn")) as pool,
        file.open("a") as lines,
    ):

        def begin(n: int) -> set[Future[dict[str, Any]]]:
            return {pool.submit(compete, *job, share=given.share) for job in islice(waiting, n)}

        running = begin(given.processes)
        while running:
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            running |= begin(len(ended))
            for result in (each.result() for each in ended):
                results.append(result)
                lines.write(json.dumps(result) + "\n")
                lines.flush()
                print(
                    "{seed} {task} {budget} {arm}: test loss {test:.4f}, {seconds:.0f} s".format(**result), flush=True
                )
    words = tables(results, "ours")
    (given.out / "table.md").write_text(words)
    draw(results, given.out)
    if given.page:
        insert(given.page, words)
    print(words)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--tasks", help="separated by commas; all of them unless given")
    parser.add_argument("--arms", help="separated by commas; all of them unless given")
    parser.add_argument("--budgets", default=",".join(BUDGETS), help="separated by commas")
    parser.add_argument("--first", type=int, help="the first seed")
    parser.add_argument("--seeds", type=int, help="the number of seeds")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="two tasks, half of the work, one seed of tuning")
    parser.add_argument("--out", type=Path, help="the folder of the results")
    parser.add_argument("--page", type=Path, help="a page whose marked part gets the tables")
    given = parser.parse_args()
    quick = given.quick
    given.tasks = given.tasks or ",".join(QUICK_TASKS if quick else CONTESTS)
    given.first = (TUNING if quick else FRESH) if given.first is None else given.first
    given.seeds = given.seeds or (1 if quick else 5)
    given.share = QUICK_SHARE if quick else 1.0
    given.out = given.out or (ROOT / "runs" / "arena-quick" if quick else ROOT / "docs" / "arena")
    return given


if __name__ == "__main__":
    main()
