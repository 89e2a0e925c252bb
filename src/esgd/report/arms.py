"""The arms of a comparison: what they are called, what they reached, and who is ahead of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esgd.run.line import LARGEST

History = Sequence[Mapping[str, Any]]
"""The lines of history.jsonl."""
Histories = Mapping[str, Mapping[Any, History]]
"""Histories by arm and seed."""
Comparison = Mapping[str, Any]
"""What `esgd compare --json` prints."""
Entry = Mapping[str, Any]
"""What one arm reached with one seed."""

TOP = 15  # table 1 and figure 1 show "the top 15 individuals in the population"
SINGLE, POPULATION, WITHOUT_EVOLUTION, ESGD = "single", "population", "no_evolution", "esgd"
BASELINE = "baseline"
"""The network of a study's first run; in a recipe's `immigrants` and `start.network` it stands for that network."""
LABELS = {
    BASELINE: "the network that all begin with",
    SINGLE: "single baseline",
    POPULATION: "population baseline",
    WITHOUT_EVOLUTION: "ESGD w/o evolution",
    ESGD: "ESGD",
}
LAST, SOUP = "population baseline, last", "greedy soup"


@dataclass(frozen=True)
class Lead:
    """On how many of the seeds that two arms share the first is strictly lower, and on how many it is higher."""

    ahead: int
    behind: int
    seeds: int

    def __str__(self) -> str:
        return f"{self.ahead} of {self.seeds}"


def standings(comparison: Comparison) -> dict[str, list[Entry]]:
    """Entries by the label of their row in table 1, in its order, ESGD last.

    The population baseline has two rows where its last checkpoint is known: back-off gives ESGD its best checkpoint for
    free, so the baseline is shown with both.
    """
    rows: dict[str, list[Entry]] = {}
    for arm, entries in arms_of(comparison).items():
        rows[LABELS.get(arm, arm)] = list(entries)
        last: list[Entry] = [{"seed": entry["seed"], **entry["last"]} for entry in entries if entry.get("last")]
        if last:
            rows[LAST] = last
        if arm == WITHOUT_EVOLUTION and comparison.get("soup"):
            rows[SOUP] = list(comparison["soup"])
    return rows


def arms_of(comparison: Comparison) -> dict[str, Sequence[Entry]]:
    """What was really trained, by name, in the order of table 1; what we have no label for goes before ESGD."""
    arms: Mapping[str, Sequence[Entry]] = comparison["arms"]
    places = {arm: place for place, arm in enumerate(LABELS)}
    order = sorted(arms, key=lambda arm: places.get(arm, places[ESGD] - 0.5))
    return {arm: arms[arm] for arm in order if arms[arm]}


def metrics(comparison: Comparison) -> list[str]:
    """Names of the test metrics that any arm has, in the order they first appear."""
    return list(
        dict.fromkeys(name for entries in standings(comparison).values() for e in entries for name in tested(e))
    )


def tested(entry: Entry) -> Mapping[str, float | None]:
    """Metrics of the fittest on the split that selection never saw; empty where there is none."""
    return entry.get("test") or {}


def lead(ours: Sequence[Entry], theirs: Sequence[Entry], metric: str | None = None) -> Lead | None:
    """Compare two arms seed by seed, by a test metric or else by fitness; None where they share no measured seed.

    What diverged is behind whatever did not.
    """
    known = {entry["seed"]: entry for entry in theirs if metric is None or metric in tested(entry)}
    shared = [e for e in ours if e["seed"] in known and (metric is None or metric in tested(e))]
    pairs = [(_rank(entry, metric), _rank(known[entry["seed"]], metric)) for entry in shared]
    return Lead(sum(a < b for a, b in pairs), sum(a > b for a, b in pairs), len(pairs)) if pairs else None


def differences(ours: Sequence[Entry], theirs: Sequence[Entry], metric: str | None = None) -> list[float]:
    """Ours minus theirs, seed by seed, where both are finite: below 0 is better."""
    known = {e["seed"]: reached(e, metric) for e in theirs if metric is None or metric in tested(e)}
    pairs = [
        (reached(entry, metric), known.get(entry["seed"]))
        for entry in ours
        if metric is None or metric in tested(entry)
    ]
    return [a - b for a, b in pairs if a is not None and b is not None]


def reached(entry: Entry, metric: str | None = None) -> float | None:
    """A test metric or else the fitness; None where it diverged."""
    return finite(entry["fitness"] if metric is None else tested(entry)[metric])


def finite(value: float | None) -> float | None:
    """None for what is null, NaN or inf, or so large that no picture could show it."""
    return value if value is not None and abs(value) < LARGEST else None


def _rank(entry: Entry, metric: str | None) -> float:
    value = reached(entry, metric)
    return float("inf") if value is None else value
