"""Which recipe a call of `fit` with a budget gets: a new one, or the one that its folder began with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any

from esgd._names.trust import packages
from esgd._serialization import decode, respelt
from esgd._text.wording import duration
from esgd.budget import Budget, seconds_in
from esgd.engines.auto import EngineChoice
from esgd.engines.choose import requested
from esgd.engines.computing import Computing
from esgd.errors import RecipeError, RunError
from esgd.genome import Genome, build
from esgd.planning import check_recipe, plan, recipe_of_work, spent
from esgd.protocols import Engine, Task
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.rules import named, ours, usual_work
from esgd.run import RunFolder
from esgd.run.manifest import RULES
from esgd.run.model import describe_network
from esgd.run.place import located

USUAL_RULES = "ours"
FOLLOWING = ("sgd_epochs", "generations", "population", "elites")
"""What a budget may change in a recipe: sizes are written out where a generation was divided."""

Request = Engine | Computing | EngineChoice


def budgeted(
    task: Task,
    recipe: Recipe | None,
    budget: Budget | None,
    engine: str | Engine,
    *,
    rules: str | None,
    run: str | Path | None,
    extend: bool,
    after: Callable[[], float],
    allow: Collection[str],
) -> tuple[Recipe, Request]:
    """The recipe of a run, and the engine: the one that was measured, or what was asked for.

    `after` says how many seconds of a time follow the last generation. It is asked where a plan is made. A run that has
    begun in its folder keeps its plan: measured again, it would be another one.
    """
    chosen = rules or USUAL_RULES
    request, make = requested(engine), named(chosen)  # wrong names are refused before a folder is made
    check_recipe(recipe, rules)
    if budget is None:
        return recipe or (ours(task) if chosen == USUAL_RULES else make(task, usual_work(task))), request
    seconds = seconds_in(budget)
    if seconds is None:
        if extend:
            raise RecipeError(
                f"budget={budget!r} with extend=True: an amount of work makes a recipe from its beginning, not from "
                f"where a run has ended. Give a longer recipe: result.recipe.extended(20). Only a run that began with "
                f"a budget of time is given a longer one."
            )
        return recipe_of_work(task, recipe, budget, chosen), request
    trusted = {*allow, *packages(recipe), *packages(engine)}
    known = _planned(task, located(run), recipe, rules, seconds, trusted) if run is not None else None
    if run is not None and known is not None:
        return _continued(known, seconds, run, extend=extend), request
    begun = perf_counter()
    made = plan(task, budget, engine, recipe=recipe, rules=chosen)
    kept = after()
    return spent(made.recipe, perf_counter() - begun + kept), made.engine


def made_by(recipe: Recipe | None, rules: str | None) -> str | None:
    """The rules that make the recipe of a run, for its manifest; None where a recipe is given."""
    return None if recipe else rules or USUAL_RULES


def _planned(
    task: Task, path: Path, recipe: Recipe | None, rules: str | None, seconds: float, allow: Collection[str]
) -> Recipe | None:
    """The recipe of the run in a folder. One that has saved nothing yet keeps its plan only for the same
    network, data, recipe and budget."""
    folder = RunFolder(path)
    if folder.has_saved:
        return _begun(folder, recipe, rules, allow)
    try:
        known, manifest = _begun(folder, recipe, rules, allow), folder.manifest()
    except RunError:
        return None
    if known is None or manifest is None or known.clock is None or known.clock.seconds != seconds:
        return None
    network = describe_network(Genome.of(build(task.model, Seeds(manifest["seed"]).at("init", 0))))
    return known if (manifest["data"], manifest["network"]) == (task.describe(), network) else None


def _begun(folder: RunFolder, recipe: Recipe | None, rules: str | None, allow: Collection[str]) -> Recipe | None:
    """The recipe of the run that has begun here. It follows the rules that it began with."""
    path, manifest = folder.path, folder.manifest()
    if manifest is None:
        return None
    began = manifest.get(RULES, rules)  # earlier versions did not write it
    if rules is not None and rules != began:
        there = "a recipe that was given" if began is None else f"rules {began!r}"
        raise RunError(
            f"{str(path)!r} belongs to another run: it follows {there}, and rules={rules!r} are asked for. A run with "
            f"a budget keeps the plan that it began with. Choose a new folder, or leave out the rules."
        )
    table = manifest["recipe"]
    try:
        return Recipe.from_dict(table, allow=allow) if recipe is None else _followed(recipe, table, path, allow)
    except RecipeError as error:
        raise RunError(f"'recipe' in {str(folder.manifest_file)!r}: {error}") from error


def _followed(recipe: Recipe, table: Mapping[str, Any], path: Path, allow: Collection[str]) -> Recipe:
    """A recipe that is given, with what the budget has changed in it. The rest of it need not be importable."""
    here, changed = recipe.described(), dict[str, Any]()
    for name, value in here.items():
        there = respelt(table.get(name), allow=allow)
        if there == value:
            continue
        if name not in FOLLOWING:
            raise RunError(
                f"{str(path)!r} belongs to another run: {name} is {there!r} in the folder, {value!r} now. Choose a new "
                f"folder, or undo the difference."
            )
        changed[name] = decode(there, allow=allow, name=name)
    return replace(recipe, **changed)


def _continued(known: Recipe, seconds: float, run: str | Path, *, extend: bool) -> Recipe:
    """The plan of a run that has begun, with more time if it is extended."""
    clock = known.clock
    if clock is None:
        raise RunError(
            f"{str(run)!r} has a run without a budget of time. Leave out the budget to continue it, or choose a new "
            f"folder."
        )
    if seconds == clock.seconds:
        return known
    if not extend or seconds < clock.seconds:
        raise RunError(
            f"{str(run)!r} has a run with a budget of {duration(clock.seconds)}, and {duration(seconds)} are asked "
            f"for. A run keeps its budget, or is given more time, all in all, with extend=True. Choose a new folder, "
            f"or give a budget that is longer."
        )
    more = seconds - clock.seconds
    last = clock.seconds * clock.share(known.generations, known.generations)
    generations = known.generations + ceil(more / max(last, seconds / 20))
    return replace(known.extended(generations), sgd_epochs=replace(clock, seconds=seconds))
