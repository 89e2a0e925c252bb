"""What was found, in sentences: who is ahead on how many seeds, whether the guarantee held, what was noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from esgd.report.arms import (
    ESGD,
    LABELS,
    LAST,
    Comparison,
    Entry,
    Histories,
    History,
    finite,
    lead,
    reached,
    standings,
    tested,
)
from esgd.report.numerals import listing, mean_and_deviation, number
from esgd.report.series import Curve, best, curve, offspring_share

_UNSEEN = "On the test split, which selection never saw,"


@dataclass(frozen=True)
class Remark:
    """A health note and where it was first said in each run."""

    text: str
    where: str


def headline(comparison: Comparison) -> list[str]:
    """The result in numbers, on fitness and then on the held-out loss; also where ESGD is behind."""
    openings = {None: f"The fittest network of {LABELS[ESGD]} has a fitness of", "loss": f"{_UNSEEN} its loss is"}
    said = (_verdict(comparison, metric, opening) for metric, opening in openings.items())
    return [sentence for sentence in said if sentence]


def run_headline(history: History, stopped: str = "") -> list[str]:
    """What a run reached, and why it was stopped early, if it was."""
    fitness = [value for value in (finite(line["best"]) for line in history) if value is not None]
    generations = _counted(len(history), "generation")
    if not fitness:
        return [f"No individual had a finite fitness in {generations}."]
    said = [f"The fittest network of {generations} has a fitness of {number(min(fitness))}."]
    if picked := history[-1].get("pick"):
        said.append(
            f"A second split picked one with a fitness of {number(finite(picked['fitness']))}; its loss there is "
            f"{number(finite(picked['loss']))}."
        )
    if measured := [f"{name} {number(finite(value))}" for name, value in history[-1].get("metrics", {}).items()]:
        said.append(f"On the fitness split it has {listing(measured)}.")
    measured = [f"{name} {number(finite(value))}" for name, value in tested(history[-1]).items()]
    if measured:
        said.append(f"{_UNSEEN} it has {listing(measured)}.")
    return [*said, f"The run was stopped early: {stopped}."] if stopped else said


def guarantee(runs: Iterable[History]) -> str:
    """Whether Theorem 1 held, or why it was waived."""
    lines = [line for history in runs for line in history]
    held = sum(line["guarantee"] == "held" for line in lines)
    promise = f"By Theorem 1 {_promise(lines)}"
    if held == len(lines):
        return f"{promise}: held in {held} of {_counted(len(lines), 'generation')}."
    reasons = dict.fromkeys(line.get("waiver", "") for line in lines if line["guarantee"] != "held")
    why = " ".join(reason for reason in reasons if reason)
    waived = f"{promise}. The guarantee was waived in {len(lines) - held} of {_counted(len(lines), 'generation')}"
    return f"{waived}: {why}" if why else f"{waived}."


def _promise(lines: Sequence[Mapping[str, Any]]) -> str:
    selected = lines[-1].get("select") if lines else None
    if not selected:
        return "the mean fitness of the m best never rises"
    never = "rises" if selected["mode"] == "min" else "falls"
    return (
        f"the mean {selected['metric']} of the m best on the fitness split, by which they are selected, never {never}"
    )


def remarks(runs: Mapping[Any, History], *, place: str = "seed {}, ") -> list[Remark]:
    """The health notes of some runs: every kind once, in its first words, with all the places it was said at.

    `place` goes before the generation, filled with the run's key.
    """
    texts: dict[str, str] = {}
    places: dict[str, list[str]] = {}
    for key, history in runs.items():
        for line in history:
            for note in line.get("notes", ()):
                texts.setdefault(note["kind"], note["text"])
                places.setdefault(note["kind"], []).append(f"{place.format(key)}generation {line['k']}")
    return [Remark(text, "; ".join(places[kind])) for kind, text in texts.items()]


def describe_fitness(histories: Histories) -> str:
    """Figure 1 for those who cannot see it."""
    curves = {LABELS[arm]: curve(runs.values(), best) for arm, runs in histories.items() if arm in LABELS}
    return f"Best fitness over generations, mean over seeds. {_ways(curves)}"


def describe_offspring(histories: Histories) -> str:
    """Figure 2 for those who cannot see it."""
    share = curve(histories.get(ESGD, {}).values(), offspring_share)
    return f"Percentage of offspring among the elites over generations of ESGD, mean over seeds: {_ends(share)}."


def describe_run(history: History) -> str:
    """The picture of a run for those who cannot see it."""
    share = curve([history], offspring_share)
    way = _ways({"Best": curve([history], best)})
    return f"Fitness over generations. {way} Offspring among the elites: {_ends(share)}."


def _verdict(comparison: Comparison, metric: str | None, opening: str) -> str:
    rows = {label: entries for label, entries in standings(comparison).items() if label != LAST}
    ours = [entry for entry in rows.pop(LABELS[ESGD], []) if metric is None or metric in tested(entry)]
    values = [reached(entry, metric) for entry in ours]
    if not values:
        return ""
    if values.count(None) == len(values):
        return f"{LABELS[ESGD]} has no finite {metric or 'fitness'}: it diverged on every seed."
    over = f" over {len(values)} seeds" if len(values) > 1 else " with one seed"
    said = f"{opening} {mean_and_deviation(values)}{over}{_place(ours, rows, metric)}."
    return f"{said} Seed by seed it is {_against(ours, rows, metric)}." if rows else said


def _place(ours: Sequence[Entry], rows: Mapping[str, Sequence[Entry]], metric: str | None) -> str:
    """Whether the mean is the lowest of all arms, and if not, whose is."""
    means = {label: mean for label, entries in rows.items() if (mean := _mean(entries, metric)) is not None}
    own = _mean(ours, metric)
    if own is None or not means:
        return ""
    first = min(means, key=lambda label: means[label])
    if own < means[first]:
        return f", the lowest{' mean' if len(ours) > 1 else ''} of all arms"
    return f", {'tied with' if own == means[first] else 'behind'} {_the(first)} with {number(means[first])}"


def _against(ours: Sequence[Entry], rows: Mapping[str, Sequence[Entry]], metric: str | None) -> str:
    """Lower than A on 3 of 3 seeds and B on 2 of 3; higher than C on 2 of 3."""
    lower, higher, level = [], [], []
    for label, entries in rows.items():
        found = lead(ours, entries, metric)
        if found is not None and found.behind > found.ahead:
            higher.append(f"{_the(label)} on {found.behind} of {found.seeds}")
        elif found is not None and found.ahead:
            lower.append(f"{_the(label)} on {found.ahead} of {found.seeds}")
        elif found is not None:
            level.append(f"{_the(label)} on {found.seeds} of {found.seeds}")
    parts = [("lower than ", lower), ("higher than ", higher), ("tied with ", level)]
    said = "; ".join(word + listing(clauses) for word, clauses in parts if clauses)
    return f"{said} seeds" if said else "there is nothing to compare it with"


def _mean(entries: Sequence[Entry], metric: str | None) -> float | None:
    known = [reached(entry, metric) for entry in entries if metric is None or metric in tested(entry)]
    return None if not known or None in known else fmean(value for value in known if value is not None)


def _ways(curves: Mapping[str, Curve]) -> str:
    """From where to where each curve goes."""
    return " ".join(
        f"{label}: from {number(shown.known[0])} to {number(shown.known[-1])}."
        if shown.known
        else f"{label}: diverged."
        for label, shown in curves.items()
    )


def _ends(share: Curve) -> str:
    known = share.known
    return f"{known[0]:.0f}% in the first, {known[-1]:.0f}% in the last" if known else "no generation"


def _the(label: str) -> str:
    return label if label.startswith("ESGD") else f"the {label}"


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
