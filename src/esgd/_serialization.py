"""How our values are spelt in TOML and JSON, and read back.

A frozen dataclass becomes a table that names its class: one of ours by its short name, `kind = "sgd"`, any other
as `kind = "package.module:Class"`. There is no registry: a short name is looked up among the public names of our
rooms, so a new strategy needs nothing but to be exported.

What is read is data. It names our own values, or code of packages that the caller allows (`esgd._names.trust`), and
reading it calls nothing but the constructors of dataclasses.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from functools import cache
from hashlib import sha256
from importlib import import_module
from math import isnan
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from esgd._names.trust import check_allowed, code_names, find_code
from esgd._text.wording import short_name
from esgd._validation import LARGEST
from esgd.errors import RecipeError, did_you_mean, shown

DEEPEST = 40
"""Levels of tables and lists in what is read at most; a recipe has some five."""

ROOMS = ("policies", "schedules", "groups", "species", "operators", "engines", "recipe", "sizes", "stopping")
"""The modules of ours whose public classes and functions have short names. They are imported at the first look-up."""


def encode(value: Any) -> Any:
    """A value of ours as plain tables, lists and scalars. Defaults are spelt out, so that a run keeps them for good.

    >>> from esgd.schedules import Steps
    >>> encode(Steps(after=(80, 121)))
    {'kind': 'steps', 'after': [80, 121], 'factor': 0.1, 'warmup': 0.0}
    """
    if isinstance(value, FunctionType):
        return {"kind": kind_of(value)}
    if is_dataclass(value) and not isinstance(value, type):
        spelt = {each.name: encode(getattr(value, each.name)) for each in fields(value) if each.init}
        return {"kind": kind_of(type(value)), **{name: item for name, item in spelt.items() if item is not None}}
    if isinstance(value, nn.Module):
        return f"network in memory, sha256 {digest(value.state_dict())}"
    if isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values()):
        return f"network in memory, sha256 {digest(value)}"
    if isinstance(value, Mapping):
        return {str(name): encode(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return [encode(item) for item in sorted(value)]
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RecipeError(
        f"{value!r} of type {type(value).__name__} cannot be written to TOML or JSON. Strategies are frozen "
        f"dataclasses or importable functions with fields that are numbers, strings, lists or other strategies."
    )


def digest(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of named tensors."""
    hashed = sha256()
    for name, tensor in sorted(tensors.items()):
        hashed.update(name.encode())
        hashed.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


def decode(spelt: Any, *, allow: Collection[str] = (), name: str = "value") -> Any:
    """The inverse of `encode`: tables with a `kind` become objects (or the function it names), lists tuples.

    `allow` has the packages, besides ours, whose code may be named. Anything else is refused by name, not imported.
    `name` is what errors call the value.

    >>> decode({"kind": "steps", "after": [80, 121]})
    Steps(after=(80, 121), factor=0.1, warmup=0.0)
    """
    return _decoded(spelt, allow, (name,))


def _decoded(spelt: Any, allow: Collection[str], path: tuple[Any, ...]) -> Any:
    if len(path) > DEEPEST:
        raise RecipeError(f"{path[0]} is nested too deeply, more than {DEEPEST} levels. Remove some levels.")
    if isinstance(spelt, Mapping):
        inner = {name: _decoded(item, allow, (*path, name)) for name, item in spelt.items() if name != "kind"}
        return construct(named(spelt["kind"], allow), inner, allow) if "kind" in spelt else inner
    if isinstance(spelt, list | tuple):
        return tuple(_decoded(item, allow, (*path, i)) for i, item in enumerate(spelt))
    if fault := _fault(spelt):
        raise RecipeError(f"{'.'.join(map(str, path))}={shown(spelt)} {fault}")
    return spelt


def respelt(spelt: Any, *, allow: Collection[str] = ()) -> Any:
    """A table as it would be written today: with names that are current, and every field that there is now.

    What cannot be read, or names code that is not allowed, is left as it is.
    """
    try:
        return encode(decode(spelt, allow=allow))
    except RecipeError:
        return spelt


def _fault(scalar: Any) -> str:
    """Why no recipe has such a number or word, or nothing."""
    if isinstance(scalar, float) and isnan(scalar):
        return "is not a number. No setting of a recipe is NaN. Correct it."
    if isinstance(scalar, int) and abs(scalar) > LARGEST:
        return f"has more digits than a machine counts with. The largest whole number is {LARGEST}."
    if isinstance(scalar, date | time):
        return "is a date or time, which no setting of a recipe is. Write a text in quotes."
    if isinstance(scalar, str) and (not scalar.isascii() and any("\ud800" <= c <= "\udfff" for c in scalar)):
        return "is not text that can be written down as UTF-8. Correct it."
    return ""


def read_toml(text: str) -> dict[str, Any]:
    """The tables in a text; `RecipeError` says why it is not TOML."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise RecipeError("it is nested too deeply") from None
    except ValueError as error:  # also a number of more than some thousand digits
        raise RecipeError(str(error)) from error


def read_value(text: str) -> Any:
    """A value as TOML spells it; a plain word stands for itself.

    >>> read_value("0.5"), read_value("[1, 2]"), read_value("per_epoch")
    (0.5, [1, 2], 'per_epoch')
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (RecursionError, ValueError) as error:
        raise RecipeError(f"{shown(text)} is nested too deeply, or has too many digits, to be a value.") from error
    if isinstance(value, int) and abs(value) > LARGEST:
        raise RecipeError(f"{shown(text)} {_fault(value)}")
    return value


def construct(thing: Any, arguments: Mapping[str, Any], allow: Collection[str] = ()) -> Any:
    """`thing(**arguments)` for a dataclass, where an unknown name gets a suggestion; a function stands for itself."""
    if isinstance(thing, FunctionType) and not arguments:
        return thing
    if not (isinstance(thing, type) and is_dataclass(thing)):
        raise RecipeError(
            f"{thing!r} is named as a strategy{' with settings' if arguments else ''}, but it is a "
            f"{type(thing).__name__}. Strategies are dataclasses, or functions without settings."
        )
    known = [field.name for field in fields(thing) if field.init]
    for name in arguments:
        if name not in known:
            raise RecipeError(
                f"{name!r} is not a field of {kind_of(thing)!r}. {did_you_mean(name, known)} "
                f"Remove the key or correct it."
            )
    for name in code_names(thing, arguments):  # constructing the value would import it
        check_allowed(name, allow)
    try:
        return thing(**arguments)
    except RecipeError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecipeError(f"{kind_of(thing)!r} cannot be made from {shown(dict(arguments))}: {error}.") from error


def kind_of(thing: Any) -> str:
    """The name a class or function goes by in TOML."""
    short = short_name(thing.__name__)
    return short if short_names().get(short) is thing else _full_name(thing)


def named(kind: Any, allow: Collection[str] = ()) -> Any:
    """The class (or function) that goes by `kind`."""
    known = short_names()
    if not isinstance(kind, str):
        raise RecipeError(f"kind={shown(kind)} is a {type(kind).__name__}, not a name. Write for example kind = 'sgd'.")
    if ":" in kind:
        return find_code(kind, allow)
    if kind not in known:
        raise RecipeError(
            f"kind={shown(kind)} is not one of ours. {did_you_mean(kind, known)} "
            f"For one of your own write kind = 'package.module:Class'."
        )
    return known[kind]


@cache
def short_names() -> Mapping[str, Any]:
    """Short name → the class or function of ours."""
    modules = [import_module(f"esgd.{room}") for room in ROOMS]
    public = [getattr(module, name) for module in modules for name in module.__all__]
    return {short_name(each.__name__): each for each in public if isinstance(each, type | FunctionType)}


def _full_name(thing: Any) -> str:
    if "<" in thing.__qualname__:
        raise RecipeError(
            f"{thing.__qualname__} has no importable name, so it cannot be written to TOML or JSON. Define it at the "
            f"top level of a module."
        )
    return f"{thing.__module__}:{thing.__qualname__}"
