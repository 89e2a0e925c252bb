"""Who competes: every rule of `esgd.rules`, a grid of rates, and single networks whose rate is picked in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from esgd import rules
from esgd.policies import Policy
from esgd.protocols import Draw, Task
from esgd.recipe import Recipe
from esgd.schedules import CosineRun

Arm = Callable[[Task, float], Recipe]

GRID = tuple(Policy(optimizer="adam", hyper={"lr": lr}, schedule=CosineRun()) for lr in (3e-4, 1e-3, 3e-3)) + tuple(
    Policy(optimizer="sgd", hyper={"lr": lr, "momentum": 0.9, "nesterov": True}, schedule=CosineRun())
    for lr in (0.01, 0.05, 0.2)
)


def grid(task: Task, work: float) -> Recipe:
    """Six networks, one for each policy of the grid, each with a sixth of the work; their averages count."""
    alone = rules.single(task, work / len(GRID))
    return replace(alone, population=len(GRID), species=_by_place)


def _by_place(request: Draw) -> Policy:
    return GRID[request.j % len(GRID)]


def label(policy: Policy) -> str:
    """What a single network is called in tables."""
    return f"single {policy.optimizer} {policy.hyper['lr']:g}"


ARMS: Mapping[str, Arm] = {**rules.RULES, "grid": grid}
"""These compete."""

HINDSIGHT: Mapping[str, Arm] = {label(policy): partial(rules.single, policy=policy) for policy in GRID}
"""Each has all of the work; the best of them on a task is the bar that pays for no tuning."""

VARIANTS: Mapping[str, Arm] = {}
"""Our rules without one of their parts."""
