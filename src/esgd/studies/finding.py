"""From what a user writes to a study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from os.path import realpath
from pathlib import Path
from pkgutil import resolve_name
from types import FunctionType
from typing import Any, get_args

from esgd._names.entry_points import STUDIES, load, offered, package_of
from esgd._names.study_names import BUILT_IN, check_what, is_study, is_toml
from esgd._names.trust import check_allowed, find_task
from esgd._serialization import decode, read_toml
from esgd.errors import EsgdError, ForeignCodeError, RecipeError, TaskError, did_you_mean
from esgd.protocols import Task
from esgd.recipe import Recipe
from esgd.run.files import read_words
from esgd.studies.study import Scale, Study

_NO_DATA = "--data {data}: {what} brings its own data. The folder is for studies that read data sets; leave it out."


def find_study(what: str, *, scale: str | None = None, data: Path | None = None, allow: Collection[str] = ()) -> Study:
    """A study by its name, a TOML file, or `package.module:task` of a package in `allow`.

    A name is built in or offered by an installed package (`esgd._names.entry_points`). A study that is offered as a
    function has two scales, "mini" unless said otherwise: by `scale`, or in the name, "ptb@paper". A TOML file is data:
    the code that it names must be of a package in `allow`, or of the one that offers its task.
    """
    name, _, suffix = what.partition("@")
    if is_study(what):
        if scale and suffix and scale != suffix:
            raise RecipeError(f"{what!r} is asked for with scale={scale!r}. Say one of the two.")
        return _by_name(name, scale or suffix, data)
    if scale is not None:
        raise RecipeError(f"scale={scale!r}: only studies with a name have a scale: {', '.join(offered(STUDIES))}.")
    if is_toml(what):
        return _from_toml(Path(what), data, allow)
    if data is not None:
        raise RecipeError(_NO_DATA.format(data=data, what=what))
    check_what(what)
    return _from_python(what, allow)


def _by_name(name: str, scale: str, data: Path | None) -> Study:
    if name in BUILT_IN:
        return _without_choices(name, resolve_name(BUILT_IN[name])(), scale, data)
    found, package = load(STUDIES, name), package_of(offered(STUDIES)[name][0])
    if isinstance(found, Study):
        return replace(_without_choices(name, found, scale, data), name=name, offered_by=package)
    chosen = _checked_scale(name, scale or "mini", get_args(Scale))
    made = _made(name, found, chosen, data)
    return replace(made, name=f"{name}@paper" if chosen == "paper" else name, offered_by=package)


def _without_choices(name: str, study: Study, scale: str, data: Path | None) -> Study:
    """A study that is there once, with its own data."""
    if data is not None:
        raise RecipeError(_NO_DATA.format(data=data, what=name))
    _checked_scale(name, scale or "mini", ("mini",))
    return study


def _made(name: str, make: Any, scale: Scale, data: Path | None) -> Study:
    try:
        made = make(scale, data)
    except EsgdError:
        raise
    except Exception as error:
        raise TaskError(
            f"the study {name!r}, called with (scale={scale!r}, data={data!r}), raised {type(error).__name__}: "
            f"{error}. --debug shows where it happened."
        ) from error
    if not isinstance(made, Study):
        raise TaskError(f"the study {name!r} is {made!r}. What is offered in {STUDIES!r} must give a Study.")
    return made


def _from_toml(path: Path, data: Path | None, allow: Collection[str]) -> Study:
    try:
        return _described_by(path, _read_toml(path), data, allow)
    except ForeignCodeError as error:
        raise ForeignCodeError(f"{str(path)!r}: {error}") from error


def _described_by(path: Path, table: Mapping[str, Any], data: Path | None, allow: Collection[str]) -> Study:
    known = ("task", "recipe", "single", "about")
    for key in table:
        if key not in known:
            raise RecipeError(f"{str(path)!r} has the unknown key {key!r}. {did_you_mean(key, known)}")
    what = table.get("task")
    if not isinstance(what, str) or what.endswith(".toml"):
        raise RecipeError(
            f"{str(path)!r} does not say what to train: task={what!r}. Add a line such as task = 'digits' or task = "
            f"'package.module:task'."
        )
    base = find_study(what, data=data, allow=allow)
    changes = _table(path, table, "recipe")
    allow = {*allow, *base.packages}
    return replace(
        base,
        name=path.stem,
        about=str(table.get("about", base.about)),
        recipe=Recipe.from_dict(merged(base.recipe, changes), allow=allow),
        rules="" if changes else base.rules,
        single=decode(_table(path, table, "single"), allow=allow) if "single" in table else base.single,
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(read_words(Path(realpath(path))))  # the user's own word: it may be a link
    except FileNotFoundError:
        raise RecipeError(
            f"there is no file {str(path)!r}. Correct the path, or see `esgd list` for what is built in."
        ) from None
    except (RecipeError, OSError, ValueError) as error:
        raise RecipeError(f"{str(path)!r} cannot be read as TOML: {error}.") from error


def _table(path: Path, table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, Mapping):
        raise RecipeError(f"{name}={value!r} in {str(path)!r} is not a table. Write [{name}] and its keys below.")
    return value


def merged(recipe: Recipe, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's tables with some of their keys changed; λ follows μ unless it was given.

    A table without a `kind` changes the strategy that is there; a string names another one.
    """
    spelt = recipe.to_dict()
    if recipe.offspring is None:
        del spelt["offspring"]
    return _merged(spelt, changes)


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(table)
    for name, value in changes.items():
        there = result.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            same = value.get("kind", there.get("kind")) == there.get("kind")
            result[name] = _merged(there, value) if same else value
        elif isinstance(there, Mapping) and isinstance(value, str) and not is_word(name, value):
            result[name] = {"kind": value}
        else:
            result[name] = value
    return result


def is_word(name: str, value: str) -> bool:
    """Whether a text stands for itself in a recipe: "auto", or the optimizer of a species. Others name a strategy."""
    return value == "auto" or (name == "species" and ":" not in value)


def _from_python(name: str, allow: Collection[str]) -> Study:
    check_allowed(name, allow, ours=())  # before anything beside us can be imported
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` would: a task beside the user is importable
        sys.path.insert(0, here)
    try:
        found = find_task(name, allow)
    except ForeignCodeError:
        raise
    except RecipeError as error:
        raise TaskError(str(error)) from error
    except Exception as error:
        raise TaskError(
            f"importing {name!r} raised {type(error).__name__}: {error}. The module must be importable without errors; "
            f"--debug shows where it happened."
        ) from error
    if isinstance(found, Study):
        return found
    if isinstance(found, Task) and not isinstance(found, type):
        return Study(name=name, about=f"The task {name}.", task=lambda seed: found, recipe=Recipe(), rules="ours")
    if not isinstance(found, FunctionType):
        raise TaskError(
            f"{name!r} is a {type(found).__name__}. Expected a task such as esgd.Supervised(…), a function from a "
            f"seed to a task, or a Study."
        )
    return Study(name=name, about=f"The task {name}.", task=_checked(name, found), recipe=Recipe(), rules="ours")


def _checked(name: str, make: Callable[[int], Any]) -> Callable[[int], Task]:
    """The user's function from a seed to a task, with errors that name it."""

    def task(seed: int) -> Task:
        try:
            made = make(seed)
        except EsgdError:
            raise
        except Exception as error:
            raise TaskError(
                f"{name}(seed={seed}) raised {type(error).__name__}: {error}. It is called with the seed and must "
                f"return a task; --debug shows where it happened."
            ) from error
        if not isinstance(made, Task):
            raise TaskError(f"{name}(seed={seed}) returned {made!r}. It must return a task such as esgd.Supervised(…).")
        return made

    return task


def _checked_scale(name: str, scale: str, known: Collection[str]) -> Scale:
    if scale not in known:
        raise RecipeError(f"scale={scale!r} is not a scale of {name}. {did_you_mean(scale, known)}")
    return "paper" if scale == "paper" else "mini"
