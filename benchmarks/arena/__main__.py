"""Run the arena and write its table: `make arena`, or

    python -m benchmarks.arena [--tasks digits,satimage] [--rules ours,pbt] [--first 5] [--seeds 5] [--quick]

Every arm has the same work, W = 16 networks × 10 epochs of the task in samples forward and backward, fitness passes
included. The model is the fittest ever seen; test losses choose nothing. Rules were chosen on seeds from 100 on. What
was run is not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import esgd
from benchmarks.arena.standings import page
from benchmarks.arena.tasks import TASKS
from benchmarks.children import ROOT
from esgd.ledger import passes
from esgd.rules import RULES
from esgd.work import Costs

NETWORKS, EPOCHS, QUICK_EPOCHS = 16, 10, 4
TUNING = 100  # from this seed on rules may be chosen; a quick look must not be one at a fresh seed
FOLDER, QUICK_FOLDER = ROOT / "benchmarks" / "results" / "arena", ROOT / "runs" / "arena-quick"


def compete(task: str, rules: str, seed: int, epochs: int) -> dict[str, Any]:
    """One run: what it spent, and how good the fittest network is."""
    made = TASKS[task](seed)
    work = 3.0 * NETWORKS * epochs * sum(Costs.of(made, esgd.Recipe()).batches)
    result = esgd.fit(made, RULES[rules](made, work), seed=seed, engine="loop:threads=1", progress=False)
    spent = sum(passes(line["ledger"]) for line in result.history)
    own = {"task": task, "rules": rules, "seed": seed, "epochs": epochs, "spent": spent / work}
    return {**own, "fitness": result.fitness, "test": result.test["loss"], "error": result.test["error"]}


def main() -> None:
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    file, epochs = given.out / "results.jsonl", QUICK_EPOCHS if given.quick else EPOCHS
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    done = {(each["task"], each["rules"], each["seed"], each["epochs"]) for each in results}
    seeds = [TUNING] if given.quick else range(given.first, given.first + given.seeds)
    for seed in seeds:
        for task in given.tasks.split(","):
            for rules in given.rules.split(","):
                if (task, rules, seed, epochs) in done:
                    continue
                results.append(compete(task, rules, seed, epochs))
                with file.open("a") as lines:
                    lines.write(json.dumps(results[-1]) + "\n")
                print(f"{seed} {task} {rules}: test loss {results[-1]['test']:.4f}", flush=True)
    (given.out / "table.md").write_text(page([each for each in results if each["epochs"] == epochs]))
    print((given.out / "table.md").read_text())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--tasks", default=",".join(TASKS), help="separated by commas")
    parser.add_argument("--rules", default=",".join(RULES), help="separated by commas")
    parser.add_argument("--first", type=int, default=5, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5, help="the number of seeds")
    parser.add_argument("--quick", action="store_true", help="less work, one seed: does it run at all?")
    parser.add_argument("--out", type=Path, help="the folder of the results")
    given = parser.parse_args()
    given.out = given.out or (QUICK_FOLDER if given.quick else FOLDER)
    return given


if __name__ == "__main__":
    main()
