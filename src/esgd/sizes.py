"""Sizes that change from generation to generation: μ_k, λ_k, m_k and the epochs K_s of an SGD step.

A number is the same in every generation, as in Algorithm 1. Anything else is a function from a `Situation` to a
number; the ones here are values, so they can be printed, compared, and written to and read from TOML.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from esgd._sizes.situation import Situation as Situation
from esgd._sizes.spending import Spending
from esgd._sizes.timed import Timed
from esgd._validation import LARGEST, check_field, check_list, check_number
from esgd.errors import RecipeError, shown

__all__ = ["Each", "Earned", "Funnel", "InTheLast", "PerIndividual", "Shared", "Spending", "Timed"]


RECENT = 20
"""Generations that λ remembers, so that it takes no longer in a long run."""

Size = Callable[[Situation], float]

_SIZE = "A size is a number that is not negative. Use for example Funnel(24, 4); see esgd.sizes."
_FUNNEL = "A funnel goes from one number of individuals to another in equal ratios. Use for example Funnel(24, 4)."
_EACH = "It has one number for each generation; the last one stays. Use for example Each((8, 4, 2, 1))."
_SHARED = "It is the number of epochs that all individuals of a generation train together, μ_k K_s. Use for example 24."
_PER_INDIVIDUAL = "It is λ_k / μ_k, the offspring for each individual. Use 4 for the paper's ratio, 0 for none."
_IN_THE_LAST = "It is λ in the run's last generation; there are no offspring before. Use for example InTheLast(2)."
_EARNED = "λ is doubled while offspring become elites and halved while they do not. Use for example Earned(2, 16)."


def size_in(name: str, size: Size, situation: Situation, *, whole: bool = False) -> float:
    """What a function says for a situation, if that is a size."""
    try:
        said = size(situation)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise RecipeError(f"{type(error).__name__}: {error}. {_meaning(name, size, situation)}") from error
    if type(said) in (int, float) and 0 <= said <= LARGEST and (not whole or said == int(said)):
        return said  # what follows quotes the size, which may have thousands of numbers
    meaning = _meaning(name, size, situation)
    number: float = check_number(name, said, at_least=0, at_most=LARGEST, meaning=meaning)
    if whole and number != int(number):
        raise RecipeError(f"{name}={number} is not a whole number. {meaning}")
    return number


def _meaning(name: str, size: Size, situation: Situation) -> str:
    return f"{name}={shown(size)} says so for generation {situation.k}. {_SIZE}"


@dataclass(frozen=True)
class Funnel:
    """From `first` in generation 1 to `last` in generation K, in equal ratios.

    >>> [Funnel(24, 4)(Situation(k=k, generations=6)) for k in range(1, 7)]
    [24, 17, 12, 8, 6, 4]
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        check_field(self, "first", at_least=1, at_most=LARGEST, whole=True, meaning=_FUNNEL)
        check_field(self, "last", at_least=1, at_most=LARGEST, whole=True, meaning=_FUNNEL)

    def __call__(self, situation: Situation) -> int:
        way = (situation.k - 1) / max(1, situation.generations - 1)
        ratio: float = (self.last / self.first) ** way
        return round(self.first * ratio)


@dataclass(frozen=True)
class Each:
    """One number for each generation; the last one stays.

    >>> [Each((8, 4, 2))(Situation(k=k, generations=5)) for k in range(1, 6)]
    [8, 4, 2, 2, 2]
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = check_list("values", self.values, meaning=_EACH)
        checked = (check_number(f"values[{i}]", value, at_least=0, meaning=_EACH) for i, value in enumerate(values))
        object.__setattr__(self, "values", tuple(checked))
        check_number("len(values)", len(self.values), at_least=1, meaning=_EACH)

    def __call__(self, situation: Situation) -> float:
        return self.values[min(situation.k, len(self.values)) - 1]


@dataclass(frozen=True)
class Shared:
    """K_s = epochs / μ_k: every generation has the same SGD work, however many individuals share it.

    >>> [Shared(24)(Situation(k=1, generations=1, population=mu)) for mu in (24, 12, 5)]
    [1.0, 2.0, 4.8]
    """

    epochs: float

    def __post_init__(self) -> None:
        check_field(self, "epochs", above=0, meaning=_SHARED)

    def __call__(self, situation: Situation) -> float:
        return self.epochs / situation.population


@dataclass(frozen=True)
class PerIndividual:
    """λ_k = `ratio` μ_k, rounded.

    >>> PerIndividual(1.5)(Situation(k=1, generations=1, population=8))
    12
    """

    ratio: float

    def __post_init__(self) -> None:
        check_field(self, "ratio", at_least=0, meaning=_PER_INDIVIDUAL)

    def __call__(self, situation: Situation) -> int:
        return round(self.ratio * situation.population)


@dataclass(frozen=True)
class InTheLast:
    """λ_k = 0, and `count` in the generation that is expected to be the run's last one, also where time is the budget.

    >>> [InTheLast(2)(Situation(k=k, generations=3, last=k == 3)) for k in range(1, 4)]
    [0, 0, 2]
    """

    count: int

    def __post_init__(self) -> None:
        check_field(self, "count", at_least=1, at_most=LARGEST, whole=True, meaning=_IN_THE_LAST)

    def __call__(self, situation: Situation) -> int:
        return self.count if situation.last else 0


@dataclass(frozen=True)
class Earned:
    """λ follows success: `least` at first, doubled after each generation in which an offspring became an elite, halved
    after each in which none did, and always from `least` to `most`. It remembers twenty generations. A plan reckons
    with the middle.

    >>> lines = [{"offspring_among_elites": share} for share in (0.5, 0.25, 0.0)]
    >>> [Earned(2, 16)(Situation(k=k, generations=4, history=lines[: k - 1])) for k in range(1, 5)]
    [2, 4, 8, 4]
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        check_field(self, "least", at_least=1, whole=True, meaning=_EARNED)
        check_field(self, "most", at_least=self.least, whole=True, meaning=_EARNED)

    def __call__(self, situation: Situation) -> int:
        if situation.history is None:
            return (self.least + self.most) // 2
        size = self.least
        for line in situation.history[-RECENT:]:
            size = min(self.most, 2 * size) if line["offspring_among_elites"] else max(self.least, size // 2)
        return size
