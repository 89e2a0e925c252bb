"""JSON that a run could have written. What JSON's own reader takes is more than can be shown, compared or written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

DEEPEST = 100
"""Levels of lists and objects within one another that are read at most; a recipe has about ten."""


_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # half a character, or the two halves of one


def parsed(text: str) -> Any:
    """The value of a JSON text; `ValueError` says why it is none that a run could have written.

    >>> parsed("[" * 101 + "]" * 101)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:  # Python refuses to read thousands of digits
        raise ValueError("a number in it has too many digits") from error
    level, depth = _nested([value]), 0
    while level:
        level, depth = (
            _nested(part for each in level for part in (each.values() if type(each) is dict else each)),
            depth + 1,
        )
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    if _HALF.search(text) and not _is_text(value):
        raise ValueError("a text in it has half a character")
    return value


def _nested(values: Iterable[Any]) -> list[Any]:
    """Those of the values that have values of their own."""
    return [each for each in values if type(each) is dict or type(each) is list]


def _is_text(value: Any) -> bool:
    try:
        return bool(json.dumps(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return False
