"""What a hyper-parameter is drawn from. A plain value stands for itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Any

import torch

from esgd.errors import RecipeError


@dataclass(frozen=True)
class Uniform:
    """Uniform in [low, high]: how the paper draws a learning rate "from a range".

    >>> 0.1 <= Uniform(0.1, 0.9).draw(torch.Generator()) <= 0.9
    True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self, self.low, self.high)

    def draw(self, generator: torch.Generator) -> float:
        return _between(self.low, self.high, generator)


@dataclass(frozen=True)
class LogUniform:
    """Uniform in the logarithm."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_range(self, self.low, self.high)
        if self.low <= 0:
            raise RecipeError(f"{self} has no logarithm at low={self.low}. A log-uniform range needs 0 < low ≤ high.")

    def draw(self, generator: torch.Generator) -> float:
        drawn = exp(_between(log(self.low), log(self.high), generator))
        return min(max(drawn, self.low), self.high)


@dataclass(frozen=True)
class Integers:
    """A whole number from low to high, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self, self.low, self.high)

    def draw(self, generator: torch.Generator) -> int:
        return int(torch.randint(self.low, self.high + 1, (), generator=generator))


@dataclass(frozen=True)
class Choice:
    """One of `values`, with equal or given weights."""

    values: tuple[Any, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        check_weights(self.values, self.weights)
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(self.weights))

    def draw(self, generator: torch.Generator) -> Any:
        return self.values[pick(len(self.values), self.weights, generator)]


Distribution = Uniform | LogUniform | Integers | Choice


def draw(value: Any, generator: torch.Generator) -> Any:
    """Draw from a distribution; anything else stands for itself."""
    return value.draw(generator) if isinstance(value, Distribution) else value


def pick(n: int, weights: tuple[float, ...] | None, generator: torch.Generator) -> int:
    """An index below n, with equal or given weights."""
    wheel = torch.tensor(weights if weights is not None else [1.0] * n, dtype=torch.float64)
    return int(torch.multinomial(wheel, 1, generator=generator))


def check_weights(values: tuple[Any, ...], weights: tuple[float, ...] | None) -> None:
    """Refuse an empty choice and weights that do not fit it."""
    if not values:
        raise RecipeError("there is nothing to choose from: the list of values is empty. Give at least one.")
    if weights is not None and (len(weights) != len(values) or min(weights) < 0 or sum(weights) <= 0):
        raise RecipeError(
            f"weights={list(weights)} do not fit {len(values)} values. Give one non-negative weight for each, not all "
            "0."
        )


def _between(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _check_range(owner: object, low: float, high: float) -> None:
    if not (isfinite(low) and isfinite(high) and low <= high):
        raise RecipeError(f"{owner} is not a range: low={low} must not exceed high={high}, and both must be finite.")
