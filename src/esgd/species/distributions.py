"""The distributions that hyper-parameters are drawn from. A plain value is used as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Any, Protocol, runtime_checkable

import torch

from esgd._validation import check_field, check_list, check_number, check_range
from esgd.errors import RecipeError
from esgd.ranges import FoundRange, near_usual, usual_range, usual_top

_RANGE = (
    "A hyper-parameter is drawn from low to high, both included, finite and low ≤ high. Use for example (0.1, 0.9)."
)
_WHOLE = "A whole number is drawn from low to high, both included. Use for example Integers(20, 64)."
FURTHEST = 2**53
"""Ends of a range of whole numbers: those that a float tells apart."""

BREADTH = 30.0  # of a range that is found
_BREADTH = "It is the top of a range of learning rates over its bottom. Use for example 30."
_VALUES = "They are what is chosen among. Give them in a list, such as [0.1, 0.5]."
_WEIGHTS = "They say how often each value is chosen. Give one non-negative weight for each, not all 0."


@runtime_checkable
class Distribution(Protocol):
    """A distribution of a hyper-parameter; your own needs only `draw`."""

    def draw(self, generator: torch.Generator) -> Any: ...


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high]: how the paper draws a learning rate "from a range".

    >>> 0.1 <= Uniform(0.1, 0.9).draw(torch.Generator()) <= 0.9
    True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _settle(self)

    def draw(self, generator: torch.Generator) -> float:
        return _between(self.low, self.high, generator)


@dataclass(frozen=True)
class LogUniform:
    """Uniform in the logarithm."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _settle(self)
        if self.low <= 0:
            raise RecipeError(f"{self} has no logarithm at low={self.low}. A log-uniform range needs 0 < low ≤ high.")

    def draw(self, generator: torch.Generator) -> float:
        drawn = exp(_between(log(self.low), log(self.high), generator))
        return min(max(drawn, self.low), self.high)


@dataclass(frozen=True, kw_only=True)
class AutoRate:
    """A learning rate whose range a test finds before generation 1; `lr="auto"` is this with its defaults.

    The test finds the top. The range is uniform in the logarithm, from top / `breadth` up to it. Without a `breadth`,
    it is the usual range if the top is near the usual one, and otherwise has a breadth of 30.

    >>> AutoRate(breadth=10).below(0.5, "sgd")
    LogUniform(low=0.05, high=0.5)
    >>> AutoRate().below(0.5, "sgd"), AutoRate().below(30.0, "sgd")
    (Uniform(low=0.01, high=0.5), LogUniform(low=1.0, high=30.0))
    """

    breadth: float | None = None

    def __post_init__(self) -> None:
        if self.breadth is not None:
            check_field(self, "breadth", at_least=1, at_most=1e6, meaning=_BREADTH)

    def below(self, top: float, optimizer: str) -> Uniform | LogUniform:
        """The range with this top, to two digits."""
        if self.breadth is None and top == usual_top(optimizer):
            return Uniform(*usual_range(optimizer))
        return LogUniform(float(f"{top / (self.breadth or BREADTH):.1e}"), top)

    def settled(self, found: FoundRange) -> FoundRange:
        """What is drawn from after a test has found this."""
        if self.breadth is None and found.basis in ("fastest", "stable") and near_usual(found):
            found = replace(found, top=usual_top(found.optimizer), basis="near")
        return replace(found, low=self.below(found.top, found.optimizer).low)


@dataclass(frozen=True)
class Integers:
    """A whole number from low to high, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _settle(self, whole=True)
        for name in ("low", "high"):
            check_field(self, name, at_least=-FURTHEST, at_most=FURTHEST, whole=True, meaning=_WHOLE)

    def draw(self, generator: torch.Generator) -> int:
        return int(torch.randint(self.low, self.high + 1, (), generator=generator))


@dataclass(frozen=True)
class Choice:
    """One of `values`, with equal or given weights."""

    values: tuple[Any, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", check_list("values", self.values, meaning=_VALUES))
        object.__setattr__(self, "weights", check_weights(self.values, self.weights))

    def draw(self, generator: torch.Generator) -> Any:
        return self.values[pick(len(self.values), self.weights, generator)]


def draw(value: Any, generator: torch.Generator) -> Any:
    """Draw from a distribution; any other value is returned as it is."""
    return value.draw(generator) if is_distribution(value) else value


def is_distribution(value: Any) -> bool:
    """Whether a value can be drawn from; a class is not a value."""
    return isinstance(value, Distribution) and not isinstance(value, type)


def pick(n: int, weights: tuple[float, ...] | None, generator: torch.Generator) -> int:
    """An index below n, with equal or given weights."""
    wheel = torch.tensor(weights if weights is not None else [1.0] * n, dtype=torch.float64)
    return int(torch.multinomial(wheel, 1, generator=generator))


def check_weights(values: tuple[Any, ...], weights: Any) -> tuple[float, ...] | None:
    """The weights as a tuple; refuses an empty choice and weights that do not fit it."""
    if not values:
        raise RecipeError("there is nothing to choose from: the list of values is empty. Give at least one.")
    if weights is None:
        return None
    given = check_list("weights", weights, meaning=_WEIGHTS)
    checked = tuple(check_number(f"weights[{i}]", w, at_least=0, meaning=_WEIGHTS) for i, w in enumerate(given))
    if len(checked) != len(values) or not 0 < sum(checked) < inf:
        raise RecipeError(f"weights={list(checked)} do not fit {len(values)} values. {_WEIGHTS}")
    return checked


def _between(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _settle(range_: Uniform | LogUniform | Integers, *, whole: bool = False) -> None:
    """Check both ends and keep them as Python's own numbers."""
    low, high = check_range(range_.low, range_.high, whole=whole, meaning=_WHOLE if whole else _RANGE)
    object.__setattr__(range_, "low", low)
    object.__setattr__(range_, "high", high)
