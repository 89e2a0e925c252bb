"""Who competes: every rule of `esgd.rules`, a grid of rates, and single networks whose rate is picked in hindsight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from esgd import rules
from esgd.operators import BestOfLooks, Carried, Cloned, MeanOfElites, Rescaled, Uninterrupted
from esgd.policies import Policy
from esgd.protocols import Draw, Species, Task
from esgd.recipe import Recipe
from esgd.schedules import CosineRun
from esgd.sizes import Each, Shared
from esgd.species import Adam, Inherited, Mixture, Sgd
from esgd.work import Costs, fitness_samples, sized, spending

Arm = Callable[[Task, float], Recipe]

PLAIN = Mixture(
    species=(
        Sgd(lr=(0.01, 0.5), gamma=1.0, schedule=CosineRun()),
        Adam(lr=(3e-4, 1e-2), gamma=1.0, schedule=CosineRun()),
    )
)
GRID = tuple(Policy(optimizer="adam", hyper={"lr": lr}, schedule=CosineRun()) for lr in (3e-4, 1e-3, 3e-3)) + tuple(
    Policy(optimizer="sgd", hyper={"lr": lr, "momentum": 0.9, "nesterov": True}, schedule=CosineRun())
    for lr in (0.01, 0.05, 0.2)
)


def grid(task: Task, work: float) -> Recipe:
    """Six networks, one for each policy of the grid, each with a sixth of the work; their averages count."""
    alone = rules.single(task, work / len(GRID))
    return replace(alone, population=len(GRID), species=_by_place)


def rescaled_halving(task: Task, work: float) -> Recipe:
    """Successive halving that ends as our rules do."""
    plain = rules.halving(task, work)
    rescaled = replace(
        plain, kinds=(Rescaled(samples=fitness_samples(task)),), offspring=Each((*[0] * (plain.generations - 1), 1))
    )
    return sized(task, work, lambda epochs: replace(rescaled, sgd_epochs=Shared(epochs / plain.generations)))


def _by_place(request: Draw) -> Policy:
    return GRID[request.j % len(GRID)]


def label(policy: Policy) -> str:
    """What a single network is called in tables."""
    return f"single {policy.optimizer} {policy.hyper['lr']:g}"


ARMS: Mapping[str, Arm] = {
    **rules.RULES,
    "ours": partial(rules.ours, rates=rules.RATES),
    "grid": grid,
    "rescaled halving": rescaled_halving,
}
"""These compete. All draw from the same rates: the arena compares rules."""

HINDSIGHT: Mapping[str, Arm] = {
    label(policy): partial(rules.single, policy=policy) for policy in GRID if policy != rules.USUAL
}
"""Each has all of the work, and so has `single`; the best of them on a task is the bar that pays for no tuning."""


def _inherited(rates: Species, *, returned: bool) -> Inherited:
    return Inherited(species=rates, probability=0.75, jitter=0.3, offspring_only=True, returned=returned)


def without(**changes: Any) -> Arm:
    """Our rules with these inputs changed, and the same work."""

    def arm(task: Task, work: float) -> Recipe:
        recipe = rules.ours(task, work, rates=rules.RATES)
        planned = [stage.sgd_epochs for stage in recipe.stages()]
        whole = sum(stage.population * stage.sgd_epochs for stage in recipe.stages())

        def changed(epochs: float) -> Recipe:
            return replace(recipe, sgd_epochs=Each(tuple(each * epochs / whole for each in planned)), **changes)

        costs = Costs.of(task, recipe)
        return spending(costs, sized(task, work, changed, costs))

    return arm


VARIANTS: Mapping[str, Arm] = {
    "with learning rates that are found": partial(rules.ours, rates=rules.FOUND),
    "without averages": without(backoff=BestOfLooks(looks=(), mean=0.0, rescale=rules.RESCALE)),
    "without rescaling in the SGD step": without(backoff=BestOfLooks(looks=())),
    "without offspring, and so without rescaling at the end": without(offspring=0, mates=1),
    "without rescaling at the end": without(kinds=(Cloned(), MeanOfElites())),
    "without any rescaling": without(backoff=BestOfLooks(looks=()), kinds=(Cloned(), MeanOfElites())),
    "without shrinking": without(baggage=Uninterrupted(returns=True)),
    "without going back": without(baggage=Uninterrupted(shrink=rules.SHRINK)),
    "with SGD that is interrupted": without(baggage=Carried()),
    "without a changed policy for a trajectory that went back": without(
        species=_inherited(rules.RATES, returned=False)
    ),
    "without weight decay": without(species=_inherited(PLAIN, returned=True)),
}
"""Our rules without one of their parts, or with learning rates that are found."""

EVERY: Mapping[str, Arm] = {**ARMS, **HINDSIGHT, **VARIANTS}
"""All that can be run, by name."""
