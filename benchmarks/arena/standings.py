"""Who is ahead: ranks, and paired differences in percent of a rival's loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.stats import rankdata, studentized_range, t

Result = Mapping[str, Any]
HINDSIGHT = "single, best rate in hindsight"


@dataclass(frozen=True)
class Difference:
    """One arm minus another in percent of the other's loss, over pairs of task and seed: the mean, its 95% interval,
    the pairs in which the one is lower, and the tasks on which it is lower on average."""

    mean: float
    error: float
    pairs: int
    wins: int
    tasks: Mapping[str, float]

    @property
    def interval(self) -> tuple[float, float]:
        reach = self.error * float(t.ppf(0.975, self.pairs - 1)) if self.pairs > 1 else inf
        return self.mean - reach, self.mean + reach

    def __str__(self) -> str:
        low, high = self.interval
        ahead = sum(each < 0 for each in self.tasks.values())
        shown = f" [{low:+.1f}, {high:+.1f}]" if isfinite(low) else ""
        return f"{self.mean:+.1f}{shown}, {self.wins}/{self.pairs} runs, {ahead}/{len(self.tasks)} tasks"


def paired(results: Sequence[Result], one: str, other: str, metric: str) -> Difference:
    """The differences where both were run.

    >>> runs = [
    ...     {"arm": arm, "task": "t", "seed": seed, "test": loss}
    ...     for arm, losses in {"ours": (0.9, 2.2), "pbt": (1.0, 2.0)}.items()
    ...     for seed, loss in enumerate(losses)
    ... ]
    >>> round(paired(runs, "ours", "pbt", "test").mean, 6)
    0.0
    """
    found = {(each["arm"], each["task"], each["seed"]): each[metric] for each in results}
    pairs = [key[1:] for key in found if key[0] == other and (one, *key[1:]) in found]
    percent = {pair: 100 * (found[one, *pair] / found[other, *pair] - 1) for pair in pairs}
    tasks = {
        task: fmean(each for (at, _), each in percent.items() if at == task) for task in {task for task, _ in pairs}
    }
    error = stdev(percent.values()) / sqrt(len(pairs)) if len(pairs) > 1 else inf
    mean = fmean(percent.values()) if pairs else inf
    return Difference(mean, error, len(pairs), sum(each < 0 for each in percent.values()), tasks)


def mean_ranks(results: Sequence[Result], metric: str) -> dict[str, float]:
    """Mean place of every arm among all arms, over the tasks and seeds that all of them have run; best first."""
    arms = list(dict.fromkeys(each["arm"] for each in results))
    found = {(each["arm"], each["task"], each["seed"]): each[metric] for each in results}
    places = _complete(results, arms)
    ranks = [rankdata([found[arm, *place] for arm in arms]) for place in places]
    means = {arm: float(fmean(rank[i] for rank in ranks)) for i, arm in enumerate(arms)} if ranks else {}
    return dict(sorted(means.items(), key=lambda each: each[1]))


def critical_difference(results: Sequence[Result]) -> float:
    """Mean ranks that differ by more than this differ at the 5% level (Nemenyi's test, as in Demšar, 2006)."""
    arms = {each["arm"] for each in results}
    n, k = len(_complete(results, arms)), len(arms)
    return float(studentized_range.ppf(0.95, k, inf)) / sqrt(2) * sqrt(k * (k + 1) / (6 * n)) if n else inf


def with_hindsight(results: Sequence[Result], singles: Sequence[str]) -> list[Result]:
    """The results without the singles of the grid, but with an arm that has the best of them on each task, by its mean
    test loss over seeds. `single` has one of the grid's policies and stays."""
    own = [each for each in results if each["arm"] not in singles]
    for task in dict.fromkeys(each["task"] for each in results):
        here = [each for each in results if each["task"] == task and each["arm"] in (*singles, "single")]
        if any(each["arm"] in singles for each in here):
            losses = {arm: [each["test"] for each in here if each["arm"] == arm] for arm in {e["arm"] for e in here}}
            best = min(losses, key=lambda arm: fmean(losses[arm]))
            own += [{**each, "arm": HINDSIGHT} for each in here if each["arm"] == best]
    return own


def _complete(results: Sequence[Result], arms: Sequence[str] | set[str]) -> list[tuple[str, int]]:
    """The pairs of task and seed that all arms have run."""
    found = {(each["arm"], each["task"], each["seed"]) for each in results}
    places = dict.fromkeys((each["task"], each["seed"]) for each in results)
    return [place for place in places if all((arm, *place) in found for arm in arms)]
