"""`--set NAME=VALUE`: change a recipe from the command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from esgd._serialization import read_value
from esgd.errors import RecipeError, did_you_mean, shown
from esgd.recipe import Recipe
from esgd.studies import Study
from esgd.studies.finding import is_word, merged


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
            raise RecipeError(
                f"--set {shown(assignment)} has no value. Write NAME=VALUE, for example --set population=32."
            )
        _assign(table, name.strip().split("."), read_value(text.strip()), shown(assignment))
    return replace(study, recipe=Recipe.from_dict(table, allow={*allow, *study.packages}))


def _assign(table: Any, path: list[str], value: Any, assignment: str) -> None:
    for depth, part in enumerate(path[:-1]):
        table = _child(table, part, ".".join(path[: depth + 1]), assignment)
    last = path[-1]
    if isinstance(table, list):
        table[_index(table, last, assignment)] = value
    elif isinstance(table.get(last), dict) and isinstance(value, str) and not is_word(last, value):
        table[last] = {"kind": value}
    else:
        table[last] = value


def _child(table: Any, part: str, path: str, assignment: str) -> Any:
    found = table[_index(table, part, assignment)] if isinstance(table, list) else table.get(part)
    if not isinstance(found, dict | list):
        named = table.items() if isinstance(table, dict) else ((str(i), value) for i, value in enumerate(table))
        inner = [name for name, value in named if isinstance(value, dict | list)]
        near = did_you_mean(part, inner) if inner else ""
        raise RecipeError(f"--set {assignment}: {path!r} is not a table of the recipe. {near}".rstrip())
    return found


def _index(items: list[Any], part: str, assignment: str) -> int:
    if part not in map(str, range(len(items))):
        raise RecipeError(f"--set {assignment}: {part!r} is not a place in a list of {len(items)}; they count from 0.")
    return int(part)
