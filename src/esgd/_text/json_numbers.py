"""Numbers in JSON, which has no inf and no NaN: both are written as null, and null is read as inf."""

from __future__ import annotations

from math import inf, isfinite


def finite(value: float) -> float | None:
    """What is written.

    >>> finite(0.5), finite(inf)
    (0.5, None)
    """
    return value if isfinite(value) else None


def number(value: float | None) -> float:
    """What is read.

    >>> number(0.5), number(None)
    (0.5, inf)
    """
    return inf if value is None else value
