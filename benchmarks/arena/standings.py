"""Who is ahead: paired differences to our rules, in percent of the arm's loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """Ours minus an arm in percent of the arm's loss, over pairs of task and seed: mean, standard error, wins."""

    mean: float
    error: float
    wins: int
    pairs: int

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.error:.1f} ({self.wins}/{self.pairs})"


def paired(results: Sequence[Result], arm: str, metric: str, *, ours: str = "ours") -> Difference:
    """The differences in a metric where both were run.

    >>> runs = [
    ...     {"rules": rules, "task": "t", "seed": seed, "test": loss}
    ...     for rules, losses in {"ours": (0.9, 2.2), "pbt": (1.0, 2.0)}.items()
    ...     for seed, loss in enumerate(losses)
    ... ]
    >>> print(paired(runs, "pbt", "test"))
    +0.0 ± 10.0 (1/2)
    """
    found = {(each["rules"], each["task"], each["seed"]): each[metric] for each in results}
    pairs = [key[1:] for key in found if key[0] == arm and (ours, *key[1:]) in found]
    percent = [100 * (found[ours, *pair] / found[arm, *pair] - 1) for pair in pairs]
    error = stdev(percent) / sqrt(len(percent)) if len(percent) > 1 else float("nan")
    return Difference(fmean(percent), error, sum(each < 0 for each in percent), len(percent))


def page(results: Sequence[Result]) -> str:
    """One table: what each arm spent, its mean rank on test loss, and how far our rules are ahead of it."""
    arms = list(dict.fromkeys(each["rules"] for each in results))
    tasks = list(dict.fromkeys(each["task"] for each in results))
    seeds = sorted({each["seed"] for each in results})
    lines = [
        f"Tasks: {', '.join(tasks)}. Seeds: {', '.join(map(str, seeds))}. Lower is better. The last columns are "
        f"ours − arm in percent of the arm's loss, ± standard error, with the pairs in which ours is lower.",
        "",
        f"| rules | work spent | mean rank | test loss: {' | '.join(tasks)} | ours − arm, test | ours − arm, fitness |",
        f"|---|---|---|{'---|' * len(tasks)}---|---|",
    ]
    for arm in sorted(arms, key=lambda arm: _rank(results, arm)):
        own = [each for each in results if each["rules"] == arm]
        losses = [fmean(each["test"] for each in own if each["task"] == task) for task in tasks]
        spent = f"{min(each['spent'] for each in own):.1%} to {max(each['spent'] for each in own):.1%}"
        against = ["", ""] if arm == "ours" else [str(paired(results, arm, metric)) for metric in ("test", "fitness")]
        cells = [f"`{arm}`", spent, f"{_rank(results, arm):.2f}", *(f"{loss:.4f}" for loss in losses), *against]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _rank(results: Sequence[Result], arm: str) -> float:
    """Mean over tasks and seeds of the arm's place among all arms, by test loss."""
    places = []
    for each in results:
        if each["rules"] == arm:
            rivals = [r["test"] for r in results if (r["task"], r["seed"]) == (each["task"], each["seed"])]
            places.append(1 + sum(loss < each["test"] for loss in rivals))
    return fmean(places)
