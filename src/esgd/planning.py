"""A recipe for a budget: so much work, or so much time on this machine with the user's own network.

A time becomes a recipe in three steps. Steps of SGD and a fitness are measured on the engine that will be used. The
rules are asked for a recipe of about as much work. Its epochs are replaced by `Timed`, which gives every generation the
share of the time that it has in that recipe, and follows the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from math import ceil
from time import perf_counter
from typing import Any

from esgd._algorithm.initialization import Origin, prepare, rows_kept
from esgd._algorithm.steps import drawn
from esgd._text.wording import duration
from esgd.budget import Budget, is_budget, seconds_in
from esgd.engines.auto import EngineChoice, suited_loop
from esgd.engines.choose import choose, requested, settle
from esgd.engines.counting import count_step
from esgd.engines.probe import epoch_steps
from esgd.engines.speed import Speed, measure_speed
from esgd.errors import RecipeError, TaskError, shown
from esgd.policies import Policy
from esgd.protocols import Draw, Engine, Setup, Task
from esgd.randomness import Seeds
from esgd.recipe import Recipe, Stage
from esgd.rules import named, ours
from esgd.sanity import check_is_task
from esgd.sizes import Each, Timed
from esgd.species.auto import settled_species
from esgd.work import NO_STEPS, check_length, expected_evaluations, measurements, sized, start_looks

PROBE = 0.02
"""Of the budget, at most, is spent on measuring; what is imported or started for the first time comes on top."""
MEASUREMENTS = 8  # about so many of equal length are made
LAST = 0.06
"""Of the budget, at most, has the last generation: as much as it is late if the machine is half as fast in it."""
ALIKE = 2.0
"""How far the work of a recipe may be from what the time allows: its number of generations hardly depends on it, and
its epochs follow the clock."""
ALIKE_SHARE = 0.01  # of a share, by which two may differ and be alike
DOUBLED = 30  # times, too little work for the rules
DISK = 1e8  # bytes a second of a checkpoint
FILES = 0.02  # seconds to write the files of a generation, however small
DIGITS = 6  # of seconds and shares in a recipe


@dataclass(frozen=True)
class Plan:
    """A recipe for a budget, the engine that it was measured on, and the seconds that planning took."""

    recipe: Recipe
    engine: EngineChoice
    seconds: float


def within(budget: Budget, task: Task, engine: str | Engine = "auto", *, rules: str = "ours") -> Recipe:
    """The recipe that `fit(task, budget=budget)` trains by: `esgd.Recipe.within`."""
    if seconds_in(budget) is None:
        return recipe_of_work(task, None, budget, rules)
    return plan(task, budget, engine, rules=rules).recipe


def ready(
    task: Task, recipe: Recipe | None, budget: Budget | None, engine: str | Engine, *, seed: int, resume: Origin
) -> tuple[Setup, Recipe, Engine]:
    """All that a run needs: what every worker must know, the recipe, and the engine. Bad input is refused here."""
    check_is_task(task)
    recipe, engine = _planned(task, recipe, budget, engine)
    setup = prepare(task, recipe, seed, resume)
    return setup, recipe, choose(engine, setup, recipe.load).engine


def _planned(
    task: Task, recipe: Recipe | None, budget: Budget | None, engine: str | Engine
) -> tuple[Recipe, str | Engine]:
    """The recipe of a run, by its budget if it has one, and the engine that was measured."""
    check_recipe(recipe)
    if budget is None:
        return recipe or ours(task), engine
    if seconds_in(budget) is None:
        return recipe_of_work(task, recipe, budget), engine
    made = plan(task, budget, engine, recipe=recipe)
    return spent(made.recipe, made.seconds), made.engine.engine


def spent(recipe: Recipe, seconds: float) -> Recipe:
    """The recipe after so many seconds of its budget are gone, or are kept back for later: at most half of it. Of a
    short budget, more is gone if PyTorch still had to import what it needs."""
    clock = recipe.clock
    if clock is None:
        return recipe
    apart = min(seconds, (clock.seconds - clock.start) / 2)
    return replace(recipe, sgd_epochs=replace(clock, apart=round(apart, DIGITS)))


def plan(
    task: Task, budget: Budget, engine: str | Engine = "auto", *, recipe: Recipe | None = None, rules: str = "ours"
) -> Plan:
    """Measure, and size a recipe for a time: by rules, or with the epochs of a recipe that is given."""
    begun, seconds = perf_counter(), seconds_in(budget)
    make, request = named(rules), requested(engine)
    if seconds is None:
        raise RecipeError(f"budget={budget!r} is no time. Use for example '30m'.")
    _check_followed(recipe)
    check_length(task, f"budget={budget!r}")
    if task.steps({}) == 0:
        raise TaskError(NO_STEPS)
    setup = prepare(task, recipe or Recipe(), seed=0)
    counted = count_step(setup, suited_loop(setup.genome.size))
    steps = epoch_steps(task, Policy(optimizer="sgd", hyper={"lr": 0.1}))
    work = 3.0 * _batch(task) * seconds / counted.seconds  # if the constants were right
    try:
        draft = recipe or make(task, work)
    except RecipeError as error:
        raise RecipeError(f"budget={budget!r} is too short: {error}") from error
    if draft.generations == 1:
        raise RecipeError(
            f"budget={budget!r} cannot be kept by a recipe with one generation: after each, the rest is planned anew. "
            f"Use more generations or other rules, or an amount of work: esgd.Work(samples=…)."
        )
    load = draft.load
    choice = settle(request, setup, load.scaled(seconds / (load.individual_epochs * steps * counted.seconds)))
    setup = replace(setup, buffers=draft.buffers, baggage=draft.baggage)
    populations = [draft.population_of(k) for k in range(1, draft.generations + 1)]
    lasting = PROBE * seconds / MEASUREMENTS
    speed = measure_speed(choice.engine, setup, populations, _policies(draft, setup), lasting)
    faster = counted.seconds * min(populations) / speed.step(min(populations))
    if recipe is None and not 1 / ALIKE < faster < ALIKE:
        draft = _smallest(make, task, work * faster, unless=draft)
    timed = _timed(draft, setup, speed, seconds, steps)
    return Plan(timed, choice, perf_counter() - begun)


def _smallest(make: Callable[[Task, float], Recipe], task: Task, work: float, *, unless: Recipe) -> Recipe:
    """The recipe for this much work. Where that is too little by its measurement, the least that the rules take: the
    clock will say what is left out. `unless` is for rules that take none of these."""
    for _ in range(DOUBLED):
        with suppress(RecipeError):
            return make(task, work)
        work *= 2
    return unless


def _timed(recipe: Recipe, setup: Setup, speed: Speed, seconds: float, steps: int) -> Recipe:
    """The recipe with epochs that follow the clock, in the proportions that they have to one another."""
    stages = list(recipe.stages())
    pace = [steps * speed.step(stage.population) for stage in stages]
    row = setup.genome.size * setup.genome.dtype.itemsize

    def beside_sgd(stage: Stage) -> float:
        looks = stage.population * measurements(recipe.backoff, stage.sgd_epochs) + expected_evaluations(recipe, stage)
        saved = FILES + (1 + rows_kept(recipe)) * (stage.survivors + 1) * row / DISK
        return speed.looks(looks) + speed.look + saved  # the test split is taken to be as large as the fitness

    rest = [beside_sgd(replace(stage, last=False)) for stage in stages]
    start = speed.start + speed.looks(start_looks(recipe))
    shares = [p * stage.sgd_epochs + r for p, r, stage in zip(pace, rest, stages, strict=True)]
    parts = _shortened([share / sum(shares) for share in shares])
    if start + rest[0] > seconds:
        raise RecipeError(
            f"budget={seconds:g} seconds is too short for this network and these data: the start takes about "
            f"{duration(start)}, and one fitness {duration(speed.look)}. Give at least "
            f"{duration(2 * (start + rest[0]))}, or a smaller fitness set."
        )
    rest += [rest[-1]] * (len(parts) - len(rest))
    rest[-1] = beside_sgd(stages[-1])
    clock = Timed(seconds=seconds, shares=_kept(parts), pace=_kept(pace), rest=_kept(rest), start=round(start, DIGITS))
    longer = recipe if len(parts) == recipe.generations else recipe.extended(len(parts))
    return replace(longer, sgd_epochs=clock)


def _shortened(shares: list[float]) -> list[float]:
    """What happens in a long generation is noticed late, and in the last one it can no longer be made up for. So the
    last one is divided in halves until it is short, and long ones that are alike at the end into short ones.

    >>> _shortened([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    [0.5, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]
    >>> len(_shortened([0.34, 0.22, 0.22, 0.22])), _shortened([0.34, 0.22, 0.22, 0.22])[1]
    (13, 0.055)
    """
    last = shares[-1]
    alike = sum(1 for _ in takewhile(lambda share: abs(share - last) < ALIKE_SHARE * last, reversed(shares)))
    if last > 2 * LAST:
        short = ceil(alike * last / LAST)
        shares = [*shares[:-alike], *[alike * last / short] * short]
    while shares[-1] > LAST:
        shares = [*shares[:-1], shares[-1] / 2, shares[-1] / 2]
    return shares


def _kept(values: Sequence[float]) -> tuple[float, ...]:
    """The values without those at the end that are the same as the one before: the last one stays."""
    rounded = [float(f"{value:.{DIGITS}g}") for value in values]
    while len(rounded) > 1 and rounded[-1] == rounded[-2]:
        rounded.pop()
    return tuple(rounded)


def _policies(recipe: Recipe, setup: Setup) -> list[Policy]:
    """Two policies that the recipe may draw, with different optimizers if it has several."""
    stream = setup.seeds.at("probe")
    draws = (Draw(k=1, j=j, generations=recipe.generations, stream=stream) for j in range(8))
    by_name = {policy.optimizer: policy for draw in draws if (policy := drawn(settled_species(recipe.species), draw))}
    return list(islice(by_name.values(), 2))


def recipe_of_work(task: Task, recipe: Recipe | None, budget: Any, rules: str = "ours") -> Recipe:
    """The recipe for an amount of `Work`: by rules, or with the epochs of a recipe that is given."""
    check_length(task, f"budget={budget!r}")
    if recipe is None:
        return named(rules)(task, budget.samples)
    _check_followed(recipe)
    lengths = [recipe.epochs_of(k) for k in range(1, recipe.generations + 1)]
    individuals = sum(n * recipe.population_of(k) for k, n in enumerate(lengths, start=1))
    return sized(
        task,
        budget.samples,
        lambda epochs: replace(recipe, sgd_epochs=Each(tuple(epochs * each / individuals for each in lengths))),
    )


def check_recipe(recipe: object, rules: str | None = None) -> Recipe | None:
    """The recipe; refuses what is none, such as a budget in its place, and one beside rules that would make one."""
    if recipe is None:
        return None
    if not isinstance(recipe, Recipe):
        how = f"budget={shown(recipe)}" if is_budget(recipe) else "esgd.Recipe(…), or none for our rules"
        raise RecipeError(f"recipe={shown(recipe)} is no recipe. Use {how}.")
    if rules is not None:
        raise RecipeError(
            f"rules={rules!r} make a recipe, and one is given. Leave out one of them: with a recipe, only its epochs "
            f"follow a budget."
        )
    return recipe


def _check_followed(recipe: Recipe | None) -> None:
    """Refuse a recipe whose epochs cannot follow a budget."""
    if recipe is None:
        return
    if recipe.fine_tuning is not None:
        raise RecipeError(
            "budget cannot be kept with this recipe: its fine_tuning has its own number of epochs. A budget changes "
            "sgd_epochs only. Use fine_tuning=None, or leave out the budget."
        )
    if not recipe.total_epochs:
        raise RecipeError(
            "budget cannot be kept with this recipe: it has no SGD, and a budget changes sgd_epochs only. Use "
            "sgd_epochs ≥ 1, or leave out the budget."
        )


def _batch(task: Task) -> int:
    """Samples of one SGD step."""
    return task.size(next(iter(task.batches(Seeds(0).at("probe"), {}))))
