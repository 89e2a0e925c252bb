"""Learning schedules: the factor on a policy's learning rate as training goes on.

Algorithm 1 says "select hyper-parameters of π and set a learning schedule". Paper silent on its shape: constant
inside a generation is the default. A schedule is any function from a `Moment` to a factor; the ones here are
values, so they print, compare and round-trip to TOML.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

from esgd.errors import RecipeError

__all__ = ["Constant", "Cosine", "CosineRun", "Linear", "Steps", "Tail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where an SGD step stands, in epochs (fractions count steps inside an epoch).

    | field    | meaning                                                              |
    |----------|----------------------------------------------------------------------|
    | `epoch`  | epochs done in this generation, 0 ≤ epoch < epochs                   |
    | `epochs` | K_s, the epochs of this generation                                   |
    | `before` | epochs done in earlier generations, so before + epoch is global      |
    | `total`  | epochs of the whole run                                              |
    """

    epoch: float
    epochs: int
    before: int = 0
    total: int = 1


Schedule = Callable[[Moment], float]


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Factor 1: the paper's generations."""

    def __call__(self, moment: Moment) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Half a cosine from 1 to `floor` inside every generation."""

    floor: float = 0.01

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def __call__(self, moment: Moment) -> float:
        return _cosine(moment.epoch / moment.epochs, self.floor)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A straight line from 1 to `floor` inside every generation."""

    floor: float = 0.01

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def __call__(self, moment: Moment) -> float:
        return 1.0 - (1.0 - self.floor) * moment.epoch / moment.epochs


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Constant, then the last epoch of every generation annealed by a cosine to `floor`."""

    floor: float = 0.01

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def __call__(self, moment: Moment) -> float:
        return _cosine(max(0.0, moment.epoch - (moment.epochs - 1)), self.floor)


@dataclass(frozen=True, kw_only=True)
class CosineRun:
    """Half a cosine from 1 to `floor` over the whole run: the schedule a strong single baseline has."""

    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_floor(self.floor)

    def __call__(self, moment: Moment) -> float:
        return _cosine(min(1.0, (moment.before + moment.epoch) / moment.total), self.floor)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Multiply by `factor` after each of the global epochs `after` (CIFAR-10: 0.1 after 80 and after 121)."""

    after: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", tuple(self.after))

    def __call__(self, moment: Moment) -> float:
        passed = sum(moment.before + moment.epoch >= epoch for epoch in self.after)
        return float(self.factor**passed)


def _cosine(progress: float, floor: float) -> float:
    return floor + (1.0 - floor) * 0.5 * (1.0 + cos(pi * progress))


def _check_floor(floor: float) -> None:
    if not 0.0 <= floor <= 1.0:
        raise RecipeError(
            f"floor={floor} is not a fraction. A schedule ends at floor × the drawn learning rate, so "
            f"0 ≤ floor ≤ 1. Use floor=0.01 for 1%."
        )
