"""One run of the arena: what it spent and how good its network is, as it went on and at the end."""

from __future__ import annotations

import warnings
from itertools import accumulate
from time import process_time
from typing import Any

import torch

import esgd
from benchmarks.arena.arms import EVERY
from benchmarks.arena.tasks import CONTESTS
from esgd.ledger import passes
from esgd.protocols import Task
from esgd.work import Costs

BUDGETS = {"short": 1.0, "long": 4.0}
"""Multiples of a contest's epochs."""


def work_of(name: str, task: Task, budget: str) -> float:
    """The work of a budget on the contest of this name, in the ledger's samples."""
    return 3.0 * BUDGETS[budget] * CONTESTS[name].epochs * sum(Costs.of(task, esgd.Recipe()).batches)


def compete(task: str, arm: str, seed: int, budget: str, *, share: float = 1.0) -> dict[str, Any]:
    """Train with the arm's rules; `share` of the work is enough to see whether it runs.

    The network is the fittest that the run has seen. Its test loss is written down after every generation and chooses
    nothing.
    """
    torch.set_num_threads(1)
    made = CONTESTS[task].task(seed)
    work = share * work_of(task, made, budget)
    recipe, begun = EVERY[arm](made, work), process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes on a run's health are not what is measured here
        result = esgd.fit(made, recipe, seed=seed, engine="loop:threads=1", progress=False, on_interrupt="raise")
    history, seconds = result.history, process_time() - begun
    spent = list(accumulate(passes(line["ledger"]) for line in history))
    looks = sum(line["ledger"]["fitness_sgd"] for line in history) / spent[-1]
    offspring = sum(line["ledger"]["fitness_evolution"] for line in history) / spent[-1]
    return {
        "task": task,
        "arm": arm,
        "seed": seed,
        "budget": budget,
        "spent": spent[-1] / work,
        "seconds": seconds,
        "shares": {"sgd": 1.0 - looks - offspring, "looks": looks, "offspring": offspring},
        "fitness": result.fitness,
        "test": result.test["loss"],
        "curve": [[each / work, line["test"]["loss"]] for each, line in zip(spent, history, strict=True)],
    }
