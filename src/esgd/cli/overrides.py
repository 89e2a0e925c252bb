"""`--set NAME=VALUE`: change a recipe from the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from esgd.errors import RecipeError, did_you_mean
from esgd.recipe import Recipe
from esgd.studies import Study
from esgd.studies.finding import merged


def overridden(study: Study, assignments: Sequence[str], *, allow: Collection[str] = ()) -> Study:
    """The study with its recipe changed; names are dotted paths into the recipe's tables, values are TOML.

    Our own rules are left out then: they would no longer have the population and the epochs of the others.
    """
    if not assignments:
        return study  # one made in Python may hold what TOML cannot say
    table = merged(study.recipe, {})
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise RecipeError(f"--set {assignment} has no value. Write NAME=VALUE, for example --set population=32.")
        _assign(table, name.strip().split("."), _value(text.strip()), assignment)
    return replace(study, recipe=Recipe.from_dict(table, allow={*allow, *study.packages}), ours=None)


def _assign(table: Any, path: list[str], value: Any, assignment: str) -> None:
    for depth, part in enumerate(path[:-1]):
        table = _child(table, part, ".".join(path[: depth + 1]), assignment)
    last = path[-1]
    if isinstance(table, list):
        table[_index(table, last, assignment)] = value
    elif isinstance(table.get(last), dict) and isinstance(value, str):
        table[last] = {"kind": value}
    else:
        table[last] = value


def _child(table: Any, part: str, path: str, assignment: str) -> Any:
    if isinstance(table, list):
        return table[_index(table, part, assignment)]
    if not isinstance(table.get(part), dict | list):
        inner = [name for name, value in table.items() if isinstance(value, dict | list)]
        raise RecipeError(f"--set {assignment}: {path!r} is not a table of the recipe. {did_you_mean(part, inner)}")
    return table[part]


def _index(items: list[Any], part: str, assignment: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise RecipeError(f"--set {assignment}: {part!r} is not a place in a list of {len(items)}; they count from 0.")
    return int(part)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except RecursionError:
        raise RecipeError(f"--set …={text[:40]}… is nested too deeply to be a value of a recipe.") from None
