"""The paper's tables, for one comparison or one run: plain strings, for HTML, Markdown, CSV or a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from esgd._text.wording import exact
from esgd.ledger import passes
from esgd.report.arms import (
    ESGD,
    LABELS,
    LAST,
    POPULATION,
    SOUP,
    TOP,
    Comparison,
    Entry,
    Histories,
    History,
    arms_of,
    differences,
    finite,
    lead,
    metrics,
    reached,
    standings,
    tested,
)
from esgd.report.numerals import ABSENT, count, duration, interval, mean_and_deviation, number, short

LEDGER = {
    "sgd_forward": "SGD forward",
    "sgd_backward": "SGD backward",
    "fitness_sgd": "fitness, SGD step",
    "fitness_evolution": "fitness, evolution",
    "fitness_saved": "early abort saved",
}
SHARES = ("error", "wer")  # test metrics that are shown in percent, as the paper does
_FIRST = ("nesterov", "lr", "momentum")  # the order of the paper's table
_UNSAID = {"betas": [0.9, 0.999]}  # ADAM's β are fixed in the paper, and its table leaves them out
_NOT_HYPER = ("optimizer", "settings", "schedule", "annealing", "clip_norm", "accumulate", "groups")


@dataclass(frozen=True)
class Table:
    """Rows of strings under named columns; the first column names the row. θ_1:μ in a name means a subscript."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


def table_1(comparison: Comparison) -> Table:
    """The paper's table 1 for one task, with the rows that make it fair and, seed by seed, who is ahead."""
    rows, names = standings(comparison), metrics(comparison)
    ours = rows.get(LABELS[ESGD], [])
    judged = [None, *(["loss"] if "loss" in names else [])]
    mu = comparison["recipe"].get("population")
    most = min(TOP, mu) if isinstance(mu, int) else TOP
    return Table(
        title=f"Table 1. {comparison['task']}",
        columns=(
            "arm",
            "fitness θ_1:μ",
            f"θ_1:μ ↔ θ_{most}:μ",
            *map(heading, names),
            *(f"ESGD ahead, {'fitness' if metric is None else 'test loss'}" for metric in judged),
        ),
        rows=tuple(
            (
                label,
                mean_and_deviation([reached(entry) for entry in entries]),
                _range(entries),
                *(mean_and_deviation([shown(e, name) for e in entries if name in tested(e)]) for name in names),
                *(ABSENT if entries is ours else str(lead(ours, entries, metric) or ABSENT) for metric in judged),
            )
            for label, entries in rows.items()
        ),
        caption=_caption(rows, most, seeds=len(comparison["seeds"])),
    )


def differences_table(comparison: Comparison) -> Table:
    """ESGD minus every other arm, seed by seed, on fitness and on all test metrics."""
    rows, judged = standings(comparison), [None, *metrics(comparison)]
    ours = rows.pop(LABELS[ESGD], [])
    return Table(
        title="Paired differences",
        columns=("difference", *("fitness" if metric is None else heading(metric) for metric in judged)),
        rows=tuple(
            (f"{LABELS[ESGD]} − {label}", *(paired(ours, entries, metric) for metric in judged))
            for label, entries in rows.items()
            if ours and label != LAST
        ),
        caption="Mean over seeds with its 95% interval (Student’s t), and on how many seeds ESGD is strictly lower. "
        "Below 0 ESGD is ahead; an interval that contains 0 separates nothing. It is about other seeds, not about "
        "other data.",
    )


def published_table(comparison: Comparison) -> Table | None:
    """The paper's own table for this task."""
    published: Mapping[str, Mapping[str, Any]] = comparison.get("published") or {}
    if not published:
        return None
    columns = list(dict.fromkeys(column for row in published.values() for column in row))
    return Table(
        title="The paper’s own figures",
        columns=("arm", *columns),
        rows=tuple(
            (LABELS.get(arm, arm), *(_published(row.get(column)) for column in columns))
            for arm, row in published.items()
        ),
        caption="From table 1 of the paper: its own networks and data, at its own scale. To be read beside the table "
        "above for the order of the arms, not for the numbers.",
    )


def _published(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(exact, value))}]"
    return ABSENT if value is None else exact(value)


def paired(ours: Sequence[Entry], theirs: Sequence[Entry], metric: str | None) -> str:
    """Ours minus theirs over the seeds they share, with its interval, and on how many of them ours is lower."""
    found, finite_ones = lead(ours, theirs, metric), differences(ours, theirs, metric)
    if found is None:
        return ABSENT
    some = f" (mean of {len(finite_ones)})" if len(finite_ones) < found.seeds else ""
    unit = 100.0 if metric in SHARES else 1.0
    return f"{interval([unit * difference for difference in finite_ones])}{some}, {found}"


def heading(metric: str) -> str:
    """The column of a test metric."""
    return f"test {metric}, %" if metric in SHARES else f"test {metric}"


def shown(entry: Entry, metric: str) -> float | None:
    """A test metric in the unit of its column."""
    value = reached(entry, metric)
    return 100.0 * value if value is not None and metric in SHARES else value


def ledger_table(comparison: Comparison) -> Table:
    """What every arm cost: samples by phase, work beside ESGD's, seconds. Means over seeds."""
    arms = {LABELS.get(arm, arm): entries for arm, entries in arms_of(comparison).items()}
    work = {label: fmean(passes(entry["ledger"]) for entry in entries) for label, entries in arms.items()}
    ours = work.get(LABELS[ESGD], 0.0)
    soup = f" A {SOUP} costs what the arm it is made of costs, and a fitness pass for every model it tries."
    return Table(
        title="Ledger",
        columns=("arm", *LEDGER.values(), "work beside ESGD", "seconds"),
        rows=tuple(
            (
                label,
                *(count(fmean(entry["ledger"].get(phase, 0) for entry in entries)) for phase in LEDGER),
                f"{work[label] / ours:.2f}" if ours else ABSENT,
                _mean_duration(entries),
            )
            for label, entries in arms.items()
        ),
        caption="Samples, mean over seeds. Work counts a forward pass as 1 and a backward pass as 2."
        + (soup if comparison.get("soup") else ""),
    )


def first_leaders(histories: Histories) -> Table | None:
    """Who led ESGD, on the first seed."""
    runs = histories.get(ESGD)
    if not runs:
        return None
    seed, history = min(runs.items())
    return leaders(history, title=f"The leader’s optimizer: {LABELS[ESGD]}, seed {seed}")


def leaders(history: History, *, title: str = "The leader’s optimizer") -> Table:
    """ "The optimizers selected by the best candidate in the population over generations" (supplement, table 5)."""
    return Table(
        title=title,
        columns=("generation", "optimizer", "best fitness"),
        rows=tuple((generation_name(line), policy_words(line["leader"]), number(line["best"])) for line in history),
        caption="The last accepted optimizer of the fittest individual; an update that was backed off does not count.",
    )


def run_ledger(history: History) -> Table:
    """What one run cost, by phase."""
    samples = {label: sum(line["ledger"].get(phase, 0) for line in history) for phase, label in LEDGER.items()}
    return Table("Samples", ("phase", "samples"), tuple((label, count(n)) for label, n in samples.items()))


def run_seconds(history: History) -> Table:
    """Where the time of one run went."""
    phases = dict.fromkeys(phase for line in history for phase in line["seconds"])
    spent = {phase: sum(line["seconds"].get(phase, 0.0) for line in history) for phase in phases}
    rows = [*spent.items(), ("together", sum(spent.values()))]
    return Table("Seconds", ("phase", "seconds"), tuple((phase, duration(seconds)) for phase, seconds in rows))


def generation_name(line: Mapping[str, Any]) -> str:
    """k, and the stage where it is not the ordinary one."""
    stage = line.get("stage", "evolution")
    return str(line["k"]) if stage == "evolution" else f"{line['k']} ({stage})"


def _caption(rows: Mapping[str, Sequence[Entry]], most: int, *, seeds: int) -> str:
    """How table 1 is to be read."""
    explained = {
        LAST: f"The {LABELS[POPULATION]} is shown with its best checkpoint and with its last.",
        SOUP: f"A {SOUP} averages the best network and the last elites of the arm in the row above it, as long as the "
        "fitness does not rise.",
    }
    said = (
        f"Mean ± sample standard deviation over {seeds} seeds." if seeds > 1 else "One seed.",
        "Fitness is what selection minimises; test is a split that selection never saw.",
        f"θ_1:μ is the fittest individual; the range runs to the {_ordinal(most)} best.",
        "“ESGD ahead” counts the seeds on which ESGD is strictly lower than the arm of that row.",
        *(words for label, words in explained.items() if label in rows),
    )
    return " ".join(said)


def policy_words(record: Mapping[str, Any] | None) -> str:
    """A policy as the paper's table spells it: sgd, nesterov=F, lr=3.61e-4, momentum=0."""
    if record is None:
        return "untrained"
    hyper = {key: value for key, value in record.items() if key not in _NOT_HYPER and _UNSAID.get(key) != value}
    first = {key: hyper.pop(key) for key in _FIRST if key in hyper}
    shown = {**first, **hyper, **record.get("settings", {})}
    if "schedule" in record:
        shown["schedule"] = record["schedule"]["kind"]
    return ", ".join([record["optimizer"], *(f"{name}={short(value)}" for name, value in shown.items())])


def _range(entries: Sequence[Entry]) -> str:
    known = [entry["top"] for entry in entries if entry.get("top") and None not in map(finite, entry["top"])]
    return f"[{number(fmean(t[0] for t in known))}, {number(fmean(t[1] for t in known))}]" if known else ABSENT


def _mean_duration(entries: Sequence[Entry]) -> str:
    known = [seconds for seconds in (finite(entry["seconds"]) for entry in entries) if seconds is not None]
    return duration(fmean(known)) if known else ABSENT


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
