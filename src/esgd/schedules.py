"""Learning schedules: the factor on a policy's learning rate during training.

Algorithm 1 says "select hyper-parameters of π and set a learning schedule". Paper silent on its shape: constant
inside a generation is the default. A schedule is any function from a `Moment` to a factor; the ones here are
values, so they can be printed, compared, and written to and read from TOML.

`warmup` is the share of a schedule's time in which the factor rises in a straight line from 1% of what it would be.
`Cosine`, `Linear` and `CosineRun` do all their falling in the time that is left. The others have marks of their own in
time, and these stay where they are. A constant rate after a warm-up is `Linear(floor=1, warmup=0.1)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

from esgd._validation import check_field, check_list, check_number

__all__ = ["Constant", "Cosine", "CosineRun", "Linear", "Steps", "Swa", "Tail"]


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
    epochs: float
    before: float = 0
    total: float = 1


Schedule = Callable[[Moment], float]

STEEPEST = 1e30
"""The factor after all drops; one above 1 is a rise."""

WARM_START = 0.01
"""The factor at the first step of a warm-up. At 0 that step would change nothing."""

_FLOOR = (
    "A schedule ends at floor × the drawn learning rate, so it is a fraction, 0 ≤ floor ≤ 1. Use floor=0.01 for 1%."
)
_WARMUP = (
    "It is the share of the time in which the learning rate rises from near 0, so 0 ≤ warmup ≤ 1. Use warmup=0.1 for a "
    "tenth, 0 for none."
)
_AFTER = "They are the global epochs after which the learning rate drops. Use after=(80, 121) for the paper's CIFAR-10."
_FACTOR = "It multiplies the learning rate at each drop. Use factor=0.1 for the paper's CIFAR-10."


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Factor 1 in the whole generation: the paper's rule."""

    def __call__(self, moment: Moment) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Half a cosine from 1 to `floor` inside every generation, after its warm-up.

    >>> course = [Cosine(floor=0, warmup=0.5)(Moment(epoch=epoch, epochs=4)) for epoch in range(4)]
    >>> [round(factor, 3) for factor in course]
    [0.01, 0.505, 1.0, 0.5]
    """

    floor: float = 0.01
    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_field(self, "floor", at_least=0, at_most=1, meaning=_FLOOR)
        check_field(self, "warmup", at_least=0, at_most=1, meaning=_WARMUP)

    def __call__(self, moment: Moment) -> float:
        rise, done, left = _warmed(moment.epoch, moment.epochs, self.warmup)
        return rise * _cosine(done / left, self.floor)


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A straight line from 1 to `floor` inside every generation, after its warm-up."""

    floor: float = 0.01
    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_field(self, "floor", at_least=0, at_most=1, meaning=_FLOOR)
        check_field(self, "warmup", at_least=0, at_most=1, meaning=_WARMUP)

    def __call__(self, moment: Moment) -> float:
        rise, done, left = _warmed(moment.epoch, moment.epochs, self.warmup)
        return rise * (1.0 - (1.0 - self.floor) * done / left)


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Constant, then the last epoch of every generation annealed by a cosine to `floor`; `warmup` is a share of a
    generation."""

    floor: float = 0.01
    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_field(self, "floor", at_least=0, at_most=1, meaning=_FLOOR)
        check_field(self, "warmup", at_least=0, at_most=1, meaning=_WARMUP)

    def __call__(self, moment: Moment) -> float:
        rise, _, _ = _warmed(moment.epoch, moment.epochs, self.warmup)
        return rise * _cosine(max(0.0, moment.epoch - (moment.epochs - 1)), self.floor)


@dataclass(frozen=True, kw_only=True)
class CosineRun:
    """Half a cosine from 1 to `floor` over the whole run, as a strong single baseline has it; `warmup` is a share of
    the run."""

    floor: float = 0.0
    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_field(self, "floor", at_least=0, at_most=1, meaning=_FLOOR)
        check_field(self, "warmup", at_least=0, at_most=1, meaning=_WARMUP)

    def __call__(self, moment: Moment) -> float:
        rise, done, left = _warmed(moment.before + moment.epoch, moment.total, self.warmup)
        return rise * _cosine(min(1.0, done / left), self.floor)


@dataclass(frozen=True, kw_only=True)
class Swa:
    """The schedule of stochastic weight averaging over the whole run: 1 for half of the time until `start`, a straight
    line to `floor` at 0.9 of it, then constant, so that iterates spread and can be averaged from `start` on. `warmup`
    is a share of the run."""

    start: float = 0.75
    floor: float = 0.05
    warmup: float = 0.0

    def __post_init__(self) -> None:
        check_field(self, "start", above=0, at_most=1, meaning="It is the part of the run before averaging. Use 0.75.")
        check_field(self, "floor", at_least=0, at_most=1, meaning=_FLOOR)
        check_field(self, "warmup", at_least=0, at_most=1, meaning=_WARMUP)

    def __call__(self, moment: Moment) -> float:
        rise, _, _ = _warmed(moment.before + moment.epoch, moment.total, self.warmup)
        way = (moment.before + moment.epoch) / moment.total / self.start
        return rise * (1.0 - (1.0 - self.floor) * min(1.0, max(0.0, (way - 0.5) / 0.4)))


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Multiply by `factor` after each of the global epochs `after` (CIFAR-10: 0.1 after 80 and after 121); `warmup` is
    a share of the run."""

    after: tuple[int, ...]
    factor: float = 0.1
    warmup: float = 0.0

    def __post_init__(self) -> None:
        after = check_list("after", self.after, meaning=_AFTER)
        epochs = (check_number(f"after[{i}]", epoch, at_least=0, meaning=_AFTER) for i, epoch in enumerate(after))
        object.__setattr__(self, "after", tuple(epochs))
        check_field(self, "factor", at_least=0, meaning=_FACTOR)
        check_field(self, "factor", at_most=STEEPEST ** (1 / max(1, len(self.after))), meaning=_FACTOR)
        check_field(self, "warmup", at_least=0, at_most=1, meaning=_WARMUP)

    def __call__(self, moment: Moment) -> float:
        rise, _, _ = _warmed(moment.before + moment.epoch, moment.total, self.warmup)
        passed = sum(moment.before + moment.epoch >= epoch for epoch in self.after)
        return rise * float(self.factor**passed)


def _cosine(progress: float, floor: float) -> float:
    return floor + (1.0 - floor) * 0.5 * (1.0 + cos(pi * progress))


def _warmed(done: float, total: float, warmup: float) -> tuple[float, float, float]:
    """The factor of a warm-up after `done` of `total` epochs; then the epochs done since it ended, and of how many."""
    warm = warmup * total
    if done < warm:
        return WARM_START + (1.0 - WARM_START) * done / warm, 0.0, total
    return 1.0, done - warm, (total - warm) or total
