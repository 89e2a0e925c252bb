"""A study: a task for every seed, a recipe, and what a single model would be trained with."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esgd.errors import RecipeError, TaskError, did_you_mean
from esgd.policies import Policy
from esgd.protocols import Species, Task
from esgd.recipe import Recipe
from esgd.species import Fixed
from esgd.spelling import decode, imported
from esgd.studies.digits import digits

BUILT_IN: Mapping[str, Callable[[], Study]] = {"digits": lambda: Study(**digits())}


@dataclass(frozen=True, kw_only=True)
class Study:
    """What `esgd run` and `esgd compare` work on.

    | field    | meaning                                                                             |
    |----------|-------------------------------------------------------------------------------------|
    | `name`   | how it is asked for                                                                 |
    | `about`  | one plain sentence on the data, for the report                                      |
    | `task`   | seed → task; a study whose data do not depend on the seed ignores it                |
    | `recipe` | ESGD's                                                                              |
    | `single` | the single baseline's species                                                       |
    """

    name: str
    about: str
    task: Callable[[int], Task]
    recipe: Recipe
    single: Species = Fixed(policy=Policy(optimizer="adam", hyper={"lr": 1e-3}))


def find_study(what: str) -> Study:
    """A built-in by name, a TOML file, or `package.module:task`."""
    if what in BUILT_IN:
        return BUILT_IN[what]()
    if what.endswith(".toml") or Path(what).is_file():
        return _from_toml(Path(what))
    if ":" in what:
        return _from_python(what, Recipe())
    raise RecipeError(
        f"{what!r} is not a task. {did_you_mean(what, BUILT_IN)} A task is a built-in, a TOML file, or the name of "
        f"one of your own: 'package.module:task'."
    )


def _from_toml(path: Path) -> Study:
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise RecipeError(
            f"there is no file {str(path)!r}. Correct the path, or see `esgd list` for what is built in."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise RecipeError(f"{str(path)!r} cannot be read as TOML: {error}.") from error
    known = ("task", "recipe", "single", "about")
    for key in table:
        if key not in known:
            raise RecipeError(f"{str(path)!r} has the unknown key {key!r}. {did_you_mean(key, known)}")
    if "task" not in table:
        raise RecipeError(
            f"{str(path)!r} does not say what to train. Add a line such as task = 'digits' or task = "
            "'package.module:task'."
        )
    base = find_study(str(table["task"]))
    changes = {name: table[name] for name in ("about",) if name in table}
    if "single" in table:
        changes["single"] = decode(table["single"])
    recipe = Recipe.from_dict(merged(base.recipe, table.get("recipe", {})))
    return Study(
        name=path.stem, task=base.task, recipe=recipe, **{"about": base.about, "single": base.single, **changes}
    )


def merged(recipe: Recipe, table: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's tables with some of them replaced; λ follows μ unless it was given."""
    spelt = recipe.to_dict()
    if recipe.offspring is None:
        del spelt["offspring"]
    return {**spelt, **table}


def _from_python(name: str, recipe: Recipe) -> Study:
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` would: a task beside the user is importable
        sys.path.insert(0, here)
    try:
        found = imported(name)
    except RecipeError as error:
        raise TaskError(str(error)) from error
    if isinstance(found, Study):
        return found
    make = (lambda seed: found) if isinstance(found, Task) else found
    if not callable(make):
        raise TaskError(
            f"{name!r} is a {type(found).__name__}. Expected a task such as esgd.Supervised(…), a function from a "
            "seed to a task, or a Study."
        )
    return Study(name=name, about=f"The task {name}.", task=make, recipe=recipe)
