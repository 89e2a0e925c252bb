"""What stands on a report's page, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esgd._text.wording import exact, in_words
from esgd.ranges import read_ranges
from esgd.report import sentences
from esgd.report.arms import ESGD, LABELS, Comparison, Histories, History
from esgd.report.figures import as_svg, figure_1, figure_2, figure_ranges, figure_run
from esgd.report.notation import recipe_table
from esgd.report.sentences import Remark
from esgd.report.tables import (
    Table,
    differences_table,
    first_leaders,
    leaders,
    ledger_table,
    published_table,
    run_ledger,
    run_seconds,
    table_1,
)
from esgd.report.templates import render
from esgd.report.views import Embedded, embed, run_digest

TEMPLATE = "page.html.j2"
BASES = {
    "near": "close to the usual one, which is kept",
    "fastest": "the loss fell most",
    "stable": "the highest that did not raise the loss",
    "usual": "the usual one; nothing was found",
}


@dataclass(frozen=True)
class Picture:
    """An inline figure with its words."""

    svg: str
    alt: str
    caption: str
    name: str = "figure"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands under it; what is left empty does not appear."""

    heading: str
    words: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    remarks: Sequence[Remark] = ()
    tables: Sequence[Table] = ()


def comparison_page(comparison: Comparison, histories: Histories, *, manifest: Mapping[str, Any] | None = None) -> str:
    """The report of a comparison."""
    sections = [
        Section(heading="Performance", tables=_performance(comparison)),
        Section(heading="Over the generations", pictures=_paper_figures(histories)),
        *conditions(histories.get(ESGD, {}), place="seed {}, "),
        Section(heading="Who led", tables=list(filter(None, [first_leaders(histories)]))),
        Section(heading="What it cost", tables=[ledger_table(comparison)]),
        Section(heading="Recipe", tables=[recipe_table(comparison["recipe"])]),
        Section(heading="Made with", tables=_made_with(manifest or {})),
    ]
    return render_page(
        kicker="ESGD beside its baselines",
        title=str(comparison["task"]),
        headline=sentences.headline(comparison),
        about=comparison.get("about", ""),
        sections=sections,
        views=embed(_digests(histories)),
        closer=2,
    )


def run_page(name: str, manifest: Mapping[str, Any], history: History, *, stopped: str = "") -> str:
    """The report of one run; `stopped` says why it ended before its last generation."""
    caption = (
        "Above, the fitness, lower is better: the line is the fittest individual, the band reaches to the 15th best, "
        "or to the worst. Below, how many of the elites were just born, and how many SGD updates were backed off."
    )
    picture = Picture(as_svg(figure_run(history), "run"), sentences.describe_run(history), caption, "run")
    sections = [
        Section(heading="Over the generations", pictures=[picture]),
        *learning_rates(history),
        *conditions({manifest.get("seed"): history}, place=""),
        Section(heading="Who led", tables=[leaders(history)]),
        Section(heading="What it cost", tables=[run_ledger(history), run_seconds(history)]),
        *described(manifest),
    ]
    return render_page(
        kicker="A run of ESGD",
        title=name,
        headline=sentences.run_headline(history, stopped),
        about="",
        sections=sections,
        views=embed({"runs": [run_digest(name, manifest, history)]}),
        closer=1,
    )


def _digests(histories: Histories) -> dict[str, Any]:
    """All runs of a comparison, those of the first seed first and shown; ESGD's own is looked at closely."""
    places = {arm: place for place, arm in enumerate(LABELS)}
    runs = sorted((seed, places.get(arm, len(places)), arm) for arm, seeds in histories.items() for seed in seeds)
    shown = [i for i, (seed, _, _) in enumerate(runs) if seed == runs[0][0]]
    return {
        "runs": [
            run_digest(f"{LABELS.get(arm, arm)}, seed {seed}", {"seed": seed}, histories[arm][seed])
            for seed, _, arm in runs
        ],
        "chosen": [str(i) for i in shown],
        "focus": str(next((i for i in shown if runs[i][2] == ESGD), 0)),
    }


def _performance(comparison: Comparison) -> list[Table]:
    tables = [table_1(comparison), published_table(comparison), differences_table(comparison)]
    return [table for table in tables if table is not None and table.rows]


def _paper_figures(histories: Histories) -> list[Picture]:
    return [
        Picture(
            as_svg(figure_1(histories), "figure-1"),
            sentences.describe_fitness(histories),
            "Figure 1. Fitness over generations, mean over seeds; lower is better. A line is the fittest individual; "
            "a band reaches to the 15th best, or to the worst where there are fewer.",
            "figure-1",
        ),
        Picture(
            as_svg(figure_2(histories), "figure-2"),
            sentences.describe_offspring(histories),
            "Figure 2. Percentage of the elites that were born in the generation, in ESGD.",
            "figure-2",
        ),
    ]


def conditions(runs: Mapping[Any, History], *, place: str) -> list[Section]:
    """What a reader must know before believing the numbers; `place` names the run that a note is from."""
    noted = sentences.remarks(runs, place=place)
    return [
        Section(heading="The guarantee", words=[sentences.guarantee(runs.values())] if runs else []),
        Section(heading="Health notes", words=["Nothing to note."] if runs and not noted else [], remarks=noted),
    ]


def learning_rates(history: History) -> list[Section]:
    """What the range test of a run has found, if there was one."""
    found = read_ranges(history)
    if not found:
        return []
    rows = [(each.name, f"{exact(each.low)} … {exact(each.top)}", BASES[each.basis], str(each.steps)) for each in found]
    tested = [each for each in found if each.probes and each.start]
    caption = "Each point is a trial from the same network. The shaded range is what learning rates are drawn from."
    words = "; ".join(f"{name}: {range_}" for name, range_, *_ in rows)
    pictures = [Picture(as_svg(figure_ranges(tested), "ranges"), f"The range test. {words}.", caption, "ranges")]
    table = Table("Ranges that were found", ("optimizer", "range", "its top", "steps"), tuple(rows))
    return [Section(heading="Learning rates", pictures=pictures if tested else [], tables=[table])]


def described(manifest: Mapping[str, Any]) -> list[Section]:
    """What a run is made of, as far as its manifest says."""
    recipe = manifest.get("recipe")
    return [
        Section(heading="Recipe", tables=[recipe_table(recipe)] if recipe else []),
        Section(heading="Made with", tables=_made_with(manifest)),
    ]


def _made_with(manifest: Mapping[str, Any]) -> list[Table]:
    facts = {name: manifest[name] for name in ("seed", "engine", "python", "machine", "begun") if name in manifest}
    rows = [(name, in_words(value)) for name, value in {**facts, **manifest.get("versions", {})}.items()]
    return [Table("Versions and machine", ("what", "value"), tuple(rows))] if rows else []


def render_page(*, sections: Sequence[Section], views: Embedded, closer: int, **words: Any) -> str:
    """A page of what is filled; the views stand behind the first `closer` sections."""
    filled = [each for each in sections if each.words or each.pictures or each.remarks or each.tables]
    return render(TEMPLATE, sections=filled, views=views, closer=closer + 1, ours=LABELS[ESGD], **words)
