"""How long a run will take yet, judged by what it has taken so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from time import perf_counter
from typing import Any

from esgd._text.wording import duration
from esgd.recipe import Stage

FORESEEN = 10_000
"""Generations that are added up at most; of a longer run the estimate is a lower bound."""

RECENT = 3  # generations that the next ones are expected to be like: early ones may be cheaper or dearer


@dataclass(frozen=True)
class Estimate:
    """Seconds to go. Not `whole` if something that is yet to come has never been timed: then it is a lower bound.

    >>> print(Estimate(100.0)), print(Estimate(7300.0, whole=False))
    about 2 min left
    over 2 h 02 min left
    (None, None)
    """

    seconds: float
    whole: bool = True

    def __str__(self) -> str:
        return f"{'about' if self.whole else 'over'} {duration(max(1.0, self.seconds))} left"


class Remaining:
    """Watches the phases of each generation go by.

    An SGD step is expected to take as long per epoch of one individual as the last few did, and the rest of a
    generation as long as that of the last few; inside a phase, what has been done of it counts more the further it is.
    A run that has a budget of time ends when it is over: `until` are the seconds that it still has.
    """

    def __init__(
        self,
        stages: Iterable[Stage],
        past: Sequence[Mapping[str, Any]] = (),
        now: Callable[[], float] = perf_counter,
        *,
        until: float | None = None,
    ) -> None:
        plan = iter(stages)
        self._stages, self._endless = list(islice(plan, FORESEEN)), next(plan, None) is not None
        self._now, self._done = now, len(past)
        self._until = None if until is None else now() + until
        self._sgd, self._rest = list[float](), list[float]()  # per epoch, and per generation that breeds
        for line, stage in zip(past, self._stages, strict=False):
            self._learn(stage, _sgd_seconds(line), sum(line["seconds"].values()))
        self._begun, self._phase, self._trained, self._part = now(), "sgd", 0.0, 0.0

    def tick(self, phase: str, done: int, total: int) -> None:
        """So much of a phase is done. What comes before the first SGD step, the fitness of the start, is no phase."""
        if phase == "sgd":
            self._trained = self._now() - self._begun
        elif not self._trained:
            return
        self._phase, self._part = phase, done / max(1, total)

    def generation(self) -> float:
        """A generation has ended; returns the seconds it took."""
        now = self._now()
        took = now - self._begun
        self._learn(self._stages[min(self._done, len(self._stages) - 1)], self._trained, took)
        self._done, self._begun, self._phase, self._trained, self._part = self._done + 1, now, "sgd", 0.0, 0.0
        return took

    @property
    def estimate(self) -> Estimate | None:
        """What is left, or None while nothing can be said."""
        if self._done >= len(self._stages):
            return None
        if self._until is not None:
            return Estimate(max(0.0, self._until - self._now()))
        this, later = self._stages[self._done], self._stages[self._done + 1 :]
        elapsed = self._now() - self._begun
        epoch = fmean(self._sgd[-RECENT:]) if self._sgd else None
        if self._phase == "sgd":
            sgd = _total(elapsed, self._part, None if epoch is None else epoch * _epochs(this))
            if sgd is None:
                return None
            epoch, left = epoch or _by_epoch(sgd, this), max(0.0, sgd - elapsed)
            coming = [this, *later]
        else:
            epoch = epoch or _by_epoch(self._trained, this)
            expected = fmean(self._rest[-RECENT:]) if self._rest else None
            rest = _total(elapsed - self._trained, self._part if this.evolution_steps == 1 else 0.0, expected)
            left, coming = max(0.0, (rest or 0.0) - (elapsed - self._trained)), list(later)
        breeding = sum(stage.evolution_steps > 0 for stage in coming)
        seconds = left + epoch * sum(map(_epochs, later))
        if self._rest:
            return Estimate(seconds + breeding * fmean(self._rest[-RECENT:]), whole=not self._endless)
        return Estimate(seconds, whole=breeding == 0 and not self._endless)

    def _learn(self, stage: Stage, sgd: float, whole: float) -> None:
        if _epochs(stage):
            self._sgd.append(_by_epoch(sgd if stage.evolution_steps else whole, stage))
        if stage.evolution_steps:
            self._rest.append(max(0.0, whole - sgd))


def _epochs(stage: Stage) -> float:
    """Of all individuals together."""
    return stage.population * stage.sgd_epochs


def _by_epoch(seconds: float, stage: Stage) -> float:
    """Of one individual; nothing is known where none is trained."""
    return seconds / _epochs(stage) if _epochs(stage) else 0.0


def _sgd_seconds(line: Mapping[str, Any]) -> float:
    """Of a generation in the history: SGD, and the fitness that belongs to it."""
    seconds, ledger = line["seconds"], line["ledger"]
    own, others = ledger["fitness_sgd"], ledger["fitness_evolution"]
    return float(seconds["sgd"] + seconds["fitness"] * (own / (own + others) if own + others else 1.0))


def _total(elapsed: float, part: float, expected: float | None) -> float | None:
    """How long a phase takes in all: what was expected gives way to what is seen as the phase continues."""
    seen = elapsed / part if part else None
    if seen is None or expected is None:
        return expected if seen is None else seen
    return part * seen + (1 - part) * max(expected, elapsed)
