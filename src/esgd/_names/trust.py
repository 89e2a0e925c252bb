"""Which code may be named by what is read from a file.

A run folder, a recipe in TOML and a checkpoint are data: they may come from a colleague or from the web. They name our
own values, optimizers of torch, and code of packages that the caller allows by name (`--allow-code mypackage`,
`allow=["mypackage"]`), or by asking for a study that the package offers. Modules of Python itself are never among
them: no strategy lives there, but `os.system` does.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

from esgd._names.entry_points import current_name
from esgd.errors import ForeignCodeError, RecipeError

OURS = (
    *("esgd.policies", "esgd.schedules", "esgd.groups", "esgd.sizes", "esgd.species"),
    *("esgd.operators", "esgd.engines", "esgd.recipe", "torch.optim"),
)
"""Where the values live that a recipe, a manifest or a checkpoint is made of."""

NAMES_CODE = {"names code": True}
"""The metadata of a dataclass field whose text "package.module:thing" is imported when the value is made or used."""


def check_allowed(name: str, allow: Collection[str], *, ours: Collection[str] = OURS) -> None:
    """Refuse `package.module:thing` unless it is ours or of a package in `allow`; nothing is imported."""
    module = name.partition(":")[0]
    if _package(module) in (*sys.stdlib_module_names, "builtins"):
        raise ForeignCodeError(
            f"{name!r} names code of Python itself. What is read from a file is data, and none of it may name that. "
            f"Remove it."
        )
    if not any(_inside(module, package) for package in (*ours, *allow)):
        package = _package(module)
        how = f" If you trust this package, say --allow-code {package}, or in Python allow=[{package!r}]."
        raise ForeignCodeError(
            f"{name!r} names code of the package {package!r}. What is read from a file is data: it runs only code that "
            f"you allow.{how if package.isidentifier() else ''}"
        )


def find_code(name: str, allow: Collection[str]) -> Any:
    """The class or function that `package.module:thing` names, or did before it was renamed.

    It must live in a package that is allowed, too.
    """
    name = current_name(name)
    check_allowed(name, allow)
    found = imported(name)
    if not isinstance(found, type | FunctionType):
        raise RecipeError(
            f"{name!r} is named as a strategy, but it is a {type(found).__name__}. Name a class or function."
        )
    if found.__module__ != name.partition(":")[0]:  # a module's names include those that it imports
        check_allowed(f"{found.__module__}:{found.__qualname__}", allow)
    return found


def find_task(name: str, allow: Collection[str]) -> Any:
    """What `package.module:task` names, in a package that the caller allows. A task runs, so none of our own values is
    one, and neither is a function that the package has from elsewhere."""
    check_allowed(name, allow, ours=())
    found = imported(name)
    if isinstance(found, FunctionType):
        check_allowed(f"{found.__module__}:{found.__qualname__}", allow, ours=())
    return found


def imported(name: str) -> Any:
    """What `package.module:thing` names. The caller vouches for the name."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise RecipeError(
            f"{name!r} cannot be imported: {error}. Names of your own are 'package.module:thing', and Python must "
            f"find the package: run from its folder, install it, or set PYTHONPATH."
        ) from error
    return found


def packages(value: Any) -> set[str]:
    """The packages, ours aside, whose code a value is made of: by passing it, the caller allows them.

    >>> from esgd.species import Optimizer
    >>> packages(Optimizer(name="torch.optim:NAdam", lr=0.1))
    set()
    """
    if isinstance(value, FunctionType):
        return _foreign([value.__module__])
    if isinstance(value, Mapping):
        return set[str]().union(*map(packages, value.values()))
    if isinstance(value, tuple | list | set | frozenset):
        return set[str]().union(*map(packages, value))
    if is_dataclass(value) and not isinstance(value, type):
        arguments = {each.name: getattr(value, each.name, None) for each in fields(value)}
        modules = [name.partition(":")[0] for name in code_names(type(value), arguments)]
        return _foreign([type(value).__module__, *modules]) | packages(arguments)
    return set()


def code_names(cls: type, arguments: Mapping[str, Any]) -> Iterator[str]:
    """The arguments of a dataclass that name code."""
    for each in fields(cls):
        value = arguments.get(each.name)
        if each.metadata.get("names code") and isinstance(value, str) and ":" in value:
            yield value


def package_named(name: str) -> str:
    """The package of `package.module:thing`."""
    return _package(name.partition(":")[0])


def _foreign(modules: Iterable[str]) -> set[str]:
    return {_package(module) for module in modules if not any(_inside(module, ours) for ours in (*OURS, "esgd"))}


def _package(module: str) -> str:
    return module.partition(".")[0]


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
