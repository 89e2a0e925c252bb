"""The checker that holds the library to its shape annotations while the tests run; conftest.py installs it."""

import re
from collections.abc import Callable
from typing import Any

from beartype import beartype

SHAPED = re.compile(r"\b(Float|Int|Bool|Shaped|Row)\b")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and results that are annotated with a shape, and only those.

    The library itself refuses other wrong arguments, in words of its own; a Protocol cannot be checked at run time; and
    beartype looks at a random item of a list, drawn from the global generator that our tests watch.
    """
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if SHAPED.search(str(hint))}
    return beartype(function)
