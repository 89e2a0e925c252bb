"""Runs side by side, whatever they are: those of one recipe are seeds of the same thing, and seeds are paired."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from esgd.ledger import passes
from esgd.report.arms import Entry, History, finite, reached, tested
from esgd.report.numerals import ABSENT, count, duration, listing, mean_and_deviation
from esgd.report.page import Section, conditions, render_page
from esgd.report.tables import Table, heading, paired, shown
from esgd.report.views import embed, facts, run_digest

NAMED = 4  # that fit into a sentence


@dataclass(frozen=True)
class Run:
    """A run as it lies on disk; `of` names what it is a seed of, where that is known."""

    name: str
    manifest: Mapping[str, Any]
    history: History
    of: str = ""

    @property
    def finished(self) -> bool:
        """Whether it has come to its end; a run without a manifest is taken as it is."""
        planned = facts(self.name, self.manifest)["generations"]
        return planned is None or self.history[-1]["k"] >= planned

    @property
    def entry(self) -> Entry:
        """What it reached, in the form of a comparison's entries."""
        known = [value for value in (finite(line["best"]) for line in self.history) if value is not None]
        return {
            "seed": self.manifest.get("seed", self.name),  # what is not known is not shared
            "fitness": min(known, default=None),
            "test": self.history[-1].get("test"),
            "work": sum(passes(line["ledger"]) for line in self.history),
            "seconds": sum(sum(line["seconds"].values()) for line in self.history),
        }


def runs_page(runs: Sequence[Run]) -> str:
    """The report of several runs."""
    groups = grouped(runs)
    return render_page(
        kicker="Runs of ESGD, side by side",
        title=" · ".join(groups) if len(groups) <= NAMED else f"{len(groups)} recipes",
        headline=cautions(groups),
        about="",
        sections=[
            Section(heading="Performance", tables=beside_tables(runs)),
            *conditions({run.name: run.history for run in runs}, place="{}, "),
        ],
        views=embed({"runs": [run_digest(run.name, run.manifest, run.history) for run in runs]}),
        closer=1,
    )


def beside_tables(runs: Sequence[Run]) -> list[Table]:
    """What they reached, and by how much the first differ from the others."""
    groups = grouped(runs)
    return [table for table in (reached_table(groups), paired_table(groups)) if table.rows]


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of the same thing or recipe with different seeds, under its name or that of the first."""
    groups: dict[str, list[Run]] = {}
    recipes: dict[str, str] = {}
    for run in runs:
        if run.of:
            groups.setdefault(run.of, []).append(run)
            continue
        recipe = json.dumps([run.manifest.get(name) for name in ("origin", "recipe", "network")], sort_keys=True)
        name = recipes.setdefault(recipe, run.name) if run.manifest.get("recipe") else run.name
        seeds = {each.manifest.get("seed") for each in groups.get(name, [])}
        name = run.name if run.manifest.get("seed") in seeds else name  # the same seed again is no new seed
        groups.setdefault(name, []).append(run)
    return groups


def cautions(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """What must be known before the numbers are compared."""
    (first, ours), *others = groups.items()
    strangers = [name for name, theirs in others if not _on_same_data(ours, theirs)]
    unfinished = [run.name for runs in groups.values() for run in runs if not run.finished]
    said = []
    if strangers:
        said.append(f"{_few(strangers)} had other data than {first}: their fitness cannot be compared.")
    if unfinished:
        said.append(f"Not finished yet: {_few(unfinished)}.")
    if len(groups) > 1 and max(map(len, groups.values())) == 1:
        said.append("There is one seed of each: what differs between them may be luck.")
    return said


def _on_same_data(ours: Sequence[Run], theirs: Sequence[Run]) -> bool:
    """Whether they had the same data on every seed that both have, or, where they share none, at all."""
    known = {run.manifest.get("seed"): run.manifest.get("data") for run in theirs}
    shared = [run for run in ours if run.manifest.get("seed") in known]
    if not shared:
        return ours[0].manifest.get("data") == theirs[0].manifest.get("data")
    return all(run.manifest.get("data") == known[run.manifest.get("seed")] for run in shared)


def _few(names: Sequence[str]) -> str:
    return listing(names) if len(names) <= NAMED else f"{len(names)} of them"


def reached_table(groups: Mapping[str, Sequence[Run]]) -> Table:
    """What each recipe reached, over its seeds."""
    entries = {name: [run.entry for run in runs] for name, runs in groups.items()}
    metrics = _metrics(groups)
    return Table(
        title="What was reached",
        columns=("run", "seeds", "generations", "fitness", *map(heading, metrics), "samples", "seconds"),
        rows=tuple(
            (
                name,
                ", ".join(str(run.manifest.get("seed", ABSENT)) for run in runs),
                ", ".join(dict.fromkeys(str(run.history[-1]["k"]) for run in runs)),
                mean_and_deviation([reached(entry) for entry in entries[name]]),
                *(mean_and_deviation([shown(e, m) for e in entries[name] if m in tested(e)]) for m in metrics),
                count(fmean(entry["work"] for entry in entries[name])),
                duration(fmean(entry["seconds"] for entry in entries[name])),
            )
            for name, runs in groups.items()
        ),
        caption="Runs of one recipe stand in one row, mean ± sample standard deviation over their seeds. Fitness is "
        "the lowest of the run, test metrics are those of its end. Samples: a forward pass counts 1, a backward 2.",
    )


def paired_table(groups: Mapping[str, Sequence[Run]]) -> Table:
    """The first recipe minus each of the others, on the seeds that both have."""
    (first, runs), *others = groups.items()
    judged = [None, *_metrics(groups)]
    ours = [run.entry for run in runs]
    return Table(
        title="Paired differences",
        columns=("difference", *("fitness" if metric is None else heading(metric) for metric in judged)),
        rows=tuple(
            (f"{first} − {name}", *(paired(ours, [run.entry for run in theirs], metric) for metric in judged))
            for name, theirs in others
        ),
        caption=f"Seed by seed, where both have the seed; {ABSENT} where they share none. Mean with its 95% interval "
        f"(Student’s t), and on how many seeds {first} is strictly lower. An interval that contains 0 separates "
        "nothing; one seed has no interval.",
    )


def _metrics(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    return list(dict.fromkeys(name for runs in groups.values() for run in runs for name in tested(run.entry)))
