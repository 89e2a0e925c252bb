"""What the figures show, as numbers: one value or one band per generation. NaN is a gap, where no fitness is finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean
from typing import Any

from esgd.report.arms import TOP, History, finite

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """A value for every generation; it knows where it begins and ends."""

    generations: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def known(self) -> list[float]:
        """The values without the gaps."""
        return [value for value in self.values if not isnan(value)]


def curve(runs: Iterable[History], value: Callable[[Line], float | None], *, stretch: bool = False) -> Curve:
    """The mean of `value` over the runs, generation by generation; a run whose value is None is left out.

    With `stretch`, generation k of K stands at 100 k / K.
    """
    by_generation: dict[int, list[float]] = {}
    for line in (line for history in runs for line in history):
        known, found = by_generation.setdefault(line["k"], []), value(line)
        if found is not None:
            known.append(found)
    generations = sorted(by_generation)
    values = tuple(fmean(by_generation[k]) if by_generation[k] else nan for k in generations)
    scale = 100 / generations[-1] if stretch and generations else 1
    return Curve(tuple(k * scale for k in generations), values)


def best(line: Line) -> float | None:
    """f(θ_1:μ), the lower bound of a band in figure 1."""
    return min(_finite(line), default=None)


def last_of_top(line: Line) -> float | None:
    """f(θ_15:μ), the upper bound of a band, or the worst where fewer are finite."""
    return max(sorted(_finite(line))[:TOP], default=None)


def elite_mean(line: Line) -> float | None:
    """J of the m best."""
    return finite(line["elite_mean"])


def offspring_share(line: Line) -> float | None:
    """Percentage of the elites that were born in this generation (figure 2)."""
    share = finite(line["offspring_among_elites"])
    return None if share is None else finite(100.0 * share)


def refused_share(line: Line) -> float | None:
    """Percentage of the SGD updates that were backed off; None where none is checked."""
    return 100.0 * line["backed_off"] / line["checked"] if line["checked"] else None


def _finite(line: Line) -> list[float]:
    return [f for f in map(finite, line["fitness"]) if f is not None]
