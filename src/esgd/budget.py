"""What a run may spend: a time, as people write it, or an amount of work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

from esgd._validation import check_field, check_number
from esgd.errors import RecipeError, shown

__all__ = ["Budget", "Work", "is_budget", "seconds_in"]

LONGEST = 3.2e9
"""Seconds: a hundred years."""
MOST_WORK = 1e18
"""Samples; no machine goes through as many."""

UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0}
_NAMES = "d|days?|h|hours?|m|min|minutes?|s|sec|seconds?"
_PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({_NAMES})(?![a-z])\s*", re.ASCII | re.IGNORECASE)
_HOW = "Use for example '30m', '2h', '1h30m' or '90s'; in Python also a number of seconds, or esgd.Work(samples=5e8)."


@dataclass(frozen=True, kw_only=True)
class Work:
    """An amount of work: samples that go through networks, forward 1 and backward 2, as the ledger counts them.

    >>> Work(samples=5e8)
    Work(samples=500000000.0)
    """

    samples: float

    def __post_init__(self) -> None:
        check_field(
            self,
            "samples",
            above=0,
            at_most=MOST_WORK,
            meaning="It is what a run may spend. Use for example Work(samples=5e8).",
        )


Budget = str | float | Work
"""What `budget=` takes: "30m", seconds, or `Work`."""


def is_budget(value: object) -> TypeGuard[Budget]:
    """Whether a value is meant as a budget, rightly written or not."""
    return isinstance(value, str | Real | Work)


def seconds_in(budget: object) -> float | None:
    """The seconds of a budget, None if it is an amount of work; what is no budget is refused.

    >>> seconds_in("1h30m"), seconds_in("90s"), seconds_in(1800), seconds_in(Work(samples=1e6))
    (5400.0, 90.0, 1800.0, None)
    """
    if isinstance(budget, Work):
        return None
    if isinstance(budget, str):
        return _read(budget)
    if isinstance(budget, bool) or not isinstance(budget, Real):
        raise RecipeError(f"budget={shown(budget)} is no budget. {_HOW}")
    return float(check_number("budget", budget, above=0, at_most=LONGEST, meaning=f"It is a time in seconds. {_HOW}"))


def _read(text: str) -> float:
    found = _PART.findall(text.strip())
    if not found or _PART.sub("", text.strip()):
        unit = "It has no unit." if text.strip().replace(".", "", 1).isdigit() else "It is no time."
        raise RecipeError(f"budget={shown(text)} cannot be read. {unit} {_HOW}")
    units = [name[0].lower() for _, name in found]
    if len(set(units)) < len(units):
        raise RecipeError(f"budget={shown(text)} says {units[-1]!r} twice. {_HOW}")
    seconds = sum(float(number) * UNITS[unit] for (number, _), unit in zip(found, units, strict=True))
    meaning = f"{shown(text)} is no time to train in. {_HOW}"
    return float(check_number("budget", seconds, above=0, at_most=LONGEST, meaning=meaning))
