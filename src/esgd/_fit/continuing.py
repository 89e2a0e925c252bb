"""What a run continues from: the state of another, or its own with another recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from esgd._algorithm.initialization import Origin
from esgd._serialization import digest, encode, respelt
from esgd.errors import RecipeError, RunError
from esgd.generation import State
from esgd.operators import intermediate
from esgd.protocols import Setup
from esgd.recipe import Recipe
from esgd.run.extension import EXTENDED
from esgd.run.manifest import RESUMED, changes

SHOWN = 4  # changes of a recipe that a history tells


def resumed(origin: Origin, recipe: Recipe | None) -> dict[str, Any]:
    """What a run that begins with the state of another adds to its identity; `recipe` is that of the other, if it is
    known."""
    if origin is None:
        return {}
    population = origin.population if isinstance(origin, State) else origin
    told = digest({"rows": population.rows, **{f"buffers/{name}": each for name, each in population.buffers.items()}})
    before = [{"after": origin.k, "recipe": recipe.described() if recipe else {}}] if isinstance(origin, State) else []
    return {RESUMED: told, **({EXTENDED: before} if before and before[0]["after"] else {})}


def settled(recipe: Recipe, setup: Setup) -> Recipe:
    """The recipe with the recombination that was chosen for this network, where it leaves the choice to us."""
    return replace(recipe, recombination=recipe.recombination or setup.recombination)


def as_begun(setup: Setup, recipe: Recipe, manifest: Mapping[str, Any] | None) -> Setup:
    """A run keeps the recombination that it began with, where the recipe leaves the choice to us: before there was
    `LoraProduct`, the rows of adapters were averaged, too."""
    plain = manifest is not None and respelt(manifest["recipe"].get("recombination")) == encode(intermediate)
    return replace(setup, recombination=intermediate) if plain and recipe.recombination is None else setup


def check_longer(recipe: Recipe, state: State | None, path: Path) -> None:
    """Refuse a recipe that a run cannot be extended by, before anything is written."""
    if state is None:
        return
    if recipe.stage_count <= state.k:
        raise RunError(
            f"{str(path)!r} has {state.k} generations, and this recipe has {recipe.stage_count}, all in all: nothing "
            f"would be added. Give more generations than there are, such as generations={state.k + 10}."
        )
    if len(state.population) != (expected := recipe.population_of(state.k + 1)):
        raise RecipeError(
            f"the run has {len(state.population)} individuals after generation {state.k}, and generation {state.k + 1} "
            f"of this recipe trains {expected}. Set population={len(state.population)}, or take the recipe of the run: "
            f"recipe.extended({recipe.generations}) keeps the last size."
        )


def marked(state: State | None, manifest: Mapping[str, Any]) -> State | None:
    """The state with what its next generation has to say of the extension that begins there."""
    parts = manifest.get(EXTENDED)
    if not parts:
        return state
    after, done = parts[-1]["after"], state.k if state else 0
    if state is None or done < after:
        raise RunError(
            f"this run was extended after generation {after}, and the last checkpoint that is whole is that of "
            f"generation {done}. What comes between followed another recipe. Restore checkpoint/{after:06d} or a later "
            f"one from a copy, or begin in a new folder."
        )
    if done > after:
        return state
    found = changes(manifest)
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    told = f" Changed: {'; '.join(found[:SHOWN])}{more}." if found else ""
    return replace(state, remark=f"The run was extended after generation {after}.{told}")
