"""K_s that follows the clock: a run that ends when its time is over. See `Timed`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from esgd._sizes.situation import Situation
from esgd._validation import check_field, check_numbers
from esgd.errors import RecipeError

RECENT = 3
"""Generations by whose seconds the next one is judged."""
LEAST = 0.015
"""Of the budget: with less left, no further generation is begun."""
TRAINED = 0.5
"""Of a generation's time, at least, is for SGD as long as the time suffices; else there are fewer generations."""
WORTHWHILE = 1.5
"""Times what a generation takes beside SGD must be left for another one."""
SHORTEST = 1e-6
"""Epochs: an engine makes it one step."""
LIMITS = (0.02, 50.0)
"""How far what is measured may be from what was planned; a machine that differs more was measured wrongly."""

_SECONDS = "It is the time that the run has, in seconds. Use for example 1800."
_PARTS = "It has one number for each generation; the last one stays. Use esgd.Recipe.within, which measures them."

Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one generation is given: K_s, and its place in the run in epochs of this length: `before` of `total`.

    (before + epoch) / total is how much of the run is done. It grows steadily from one generation to the next, also
    where the plan has changed between them, and is 1 at the end. The `last` one is expected to be that; where time is
    the budget, another may follow, or the time may be over before.
    """

    epochs: float
    before: float
    total: float
    last: bool


@dataclass(frozen=True, kw_only=True)
class Timed:
    """K_s for a run that lasts `seconds`: every generation has its share of the time that is left.

    | field     | meaning                                                                                           |
    |-----------|---------------------------------------------------------------------------------------------------|
    | `seconds` | the time that the run has                                                                         |
    | `shares`  | how it is divided among the generations, relative to one another; the last one stays              |
    | `pace`    | seconds of one epoch of all individuals of a generation, as measured before; the last one stays   |
    | `rest`    | seconds of a generation beside SGD, as measured before; the last one stays                        |
    | `start`   | seconds before generation 1                                                                       |
    | `apart`   | seconds before and after the run that count as well: to measure `pace`, to write a report         |

    What `pace` and `rest` turn out to be is in the history, and the rest of the run is planned anew after every
    generation. K_s is a function of the history alone, so a run that is resumed decides as before. When the time is
    over, no further generation begins. `esgd.Recipe.within` makes such a size.

    >>> from esgd.sizes import Situation
    >>> ten = Timed(seconds=12.0, shares=(1.0,), pace=(0.5,), rest=(0.2,), start=2.0)
    >>> ten(Situation(k=1, generations=10))  # one second, of which SGD has 0.8
    1.6
    """

    seconds: float
    shares: tuple[float, ...]
    pace: tuple[float, ...]
    rest: tuple[float, ...]
    start: float = 0.0
    apart: float = 0.0

    def __post_init__(self) -> None:
        check_field(self, "seconds", above=0, meaning=_SECONDS)
        for name in ("start", "apart"):
            check_field(self, name, at_least=0, meaning=_SECONDS)
        for name in ("shares", "pace", "rest"):
            check_numbers(self, name, may_be_zero=name == "rest", meaning=_PARTS)
        if self.start + self.apart >= self.seconds:
            raise RecipeError(
                f"seconds={self.seconds:g} is not more than start={self.start:g} and apart={self.apart:g} together. "
                f"Nothing would be left for training. Give more time."
            )

    def __call__(self, situation: Situation) -> float:
        turn = self.turn(situation.k, situation.generations, situation.history)
        return turn.epochs if turn else SHORTEST

    def turn(self, k: int, generations: int, history: Lines | None = None) -> Turn | None:
        """What generation k is given after this history, of a plan where that is None; None if the time is over."""
        to_come, slow, burden = sum_of(self.shares, k, generations), 1.0, value_of(self.rest, k)
        if history is None:
            whole = sum_of(self.shares, 1, generations)
            left, reached = self.left(()) * to_come / whole, 1.0 - to_come / whole
        else:
            lines = [line for line in history if "clock" in line]  # those before another run's state was taken up
            left, reached = self.left(lines), self._reached(lines)
            slow, burden = self._slowness(lines), burden * self._burden(lines)
            if lines and left < max(LEAST * self.seconds, burden):
                return None
        given = min(left, max(left * value_of(self.shares, k) / to_come, burden / (1 - TRAINED)))
        if k == generations or left - given < max(LEAST * self.seconds, WORTHWHILE * burden):
            given = left
            burden *= max(1.0, value_of(self.rest, generations) / (value_of(self.rest, k) or 1.0))
        epochs = max(SHORTEST, (given - burden) / (value_of(self.pace, k) * slow))
        way = (1.0 - reached) * given / left
        total = epochs / way
        return Turn(epochs, reached * total, total, last=k == generations or (given == left and history is not None))

    def share(self, k: int, generations: int) -> float:
        """The part of the time that generation k is planned to have."""
        return value_of(self.shares, k) / sum_of(self.shares, 1, generations)

    def left(self, history: Lines) -> float:
        """Seconds that generations still have after this history; the last one has to be saved, too."""
        if not history:
            return self.seconds - self.apart - self.start
        return min(self.seconds, self.seconds - self.elapsed(history) - _between(history))

    def elapsed(self, history: Lines) -> float:
        """How much of the time has passed at the end of this history."""
        clock = history[-1].get("clock") if history else None
        return float(clock["elapsed"]) if clock else self.apart

    def _reached(self, history: Lines) -> float:
        """How much of the run is done. Where it was given more time in between, less of it is than was before."""
        if not history:
            return 0.0
        last = history[-1]["clock"]
        return min(1.0 - 1e-9, float(last["reached"]) * min(1.0, float(last["budget"]) / self.seconds))

    def _slowness(self, history: Lines) -> float:
        """Seconds of SGD in the last generations, by what was planned for their epochs."""
        lines = history[-RECENT:]
        planned = sum(value_of(self.pace, line["k"]) * float(line["clock"]["epochs"]) for line in lines)
        return _limited(sum(_sgd(line) for line in lines) / planned if planned else 1.0)

    def _burden(self, history: Lines) -> float:
        """The same of what is beside SGD. The median, because one of them may have waited for something."""
        between, ratios = _between(history), list[float]()
        for line in history[-RECENT:]:
            clock, planned = line["clock"], value_of(self.rest, line["k"])
            spent = float(clock["elapsed"]) - float(clock["begun"]) - _sgd(line) + between
            ratios.append(max(0.0, spent) / planned if planned else 1.0)
        return _limited(median(ratios)) if ratios else 1.0


def _sgd(line: Mapping[str, Any]) -> float:
    """Seconds of SGD. Earlier versions wrote them only where the digest of a history does not cover them."""
    return float(line["clock"].get("sgd", line["seconds"]["sgd"]))


def _between(history: Lines) -> float:
    """Seconds from the end of a generation to the beginning of the next, in which it is saved and reported."""
    recent = history[-RECENT - 1 :]
    waits = [
        max(0.0, float(line["clock"]["begun"]) - float(before["clock"]["elapsed"])) for before, line in pairwise(recent)
    ]
    return median(waits) if waits else 0.0


def _limited(ratio: float) -> float:
    return min(LIMITS[1], max(LIMITS[0], ratio))


def sum_of(values: Sequence[float], first: int, last: int) -> float:
    """The sum of the values of these generations."""
    told = min(last, len(values))
    return sum(values[first - 1 : told]) + values[-1] * (last - max(told, first - 1))


def value_of(values: Sequence[float], k: int) -> float:
    """The value of generation k; the last one stays."""
    return values[min(k, len(values)) - 1]
