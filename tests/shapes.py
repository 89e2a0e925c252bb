"""The checker that holds the library to its shape annotations while the tests run; conftest.py installs it."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jaxtyping
from beartype import beartype

SHAPED = re.compile(r"\b(Float|Int|Bool|Shaped|Row)\b")
CHECKED = 4
"""Calls of a function that are checked in each file of tests. A check takes longer than most of what it checks."""

calls = Counter[Callable[..., Any]]()
"""Of each function in this file of tests; conftest.py begins anew with the next."""


def install(modules: Sequence[str]) -> None:
    """Check these modules when they are imported."""
    wrap = jaxtyping.jaxtyped

    def jaxtyped(*, typechecker: Any) -> Callable[[Any], Any]:
        """Wrap classes, and functions that say a shape: every call of a wrapped one takes time."""

        def wrapped(item: Any) -> Any:
            if isinstance(item, type):
                plain, checking = item.__init__, wrap(item, typechecker=typechecker)
                if checking.__init__ is not plain:  # a dataclass, whose fields are checked
                    checking.__init__ = _first_calls(plain, checking.__init__)
                return checking
            return _first_calls(item, wrap(item, typechecker=typechecker)) if _is_shaped(item) else item

        return wrapped

    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(modules, f"{__name__}.checked")


def _first_calls(plain: Callable[..., Any], checking: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, after the first calls in a file of tests, which are checked."""

    @wraps(plain)
    def called(*arguments: Any, **named: Any) -> Any:
        calls[plain] += 1
        return (checking if calls[plain] <= CHECKED else plain)(*arguments, **named)

    return called


def _is_shaped(function: Callable[..., Any]) -> bool:
    return any(SHAPED.search(str(hint)) for hint in function.__annotations__.values())


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and results that are annotated with a shape, and only those.

    The library itself refuses other wrong arguments, in words of its own; a Protocol cannot be checked at run time; and
    beartype looks at a random item of a list, drawn from the global generator that our tests watch.
    """
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if SHAPED.search(str(hint))}
    return beartype(function)
