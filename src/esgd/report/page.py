"""One page of HTML that needs nothing but itself. The one file that imports jinja2, and only when it writes.

Autoescape is on: a name with markup in it is shown, not executed. The only markup that is let through is our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from esgd.errors import MissingExtraError
from esgd.report import findings
from esgd.report.arms import ESGD, LABELS, Comparison, Histories, History
from esgd.report.figures import as_svg, figure_1, figure_2, figure_run
from esgd.report.findings import Remark
from esgd.report.notation import phrase, recipe_table
from esgd.report.tables import (
    Table,
    differences_table,
    leaders,
    leaders_tables,
    ledger_table,
    published_table,
    run_ledger,
    run_seconds,
    table_1,
)

TEMPLATE = "page.html.j2"
_NUMBER = re.compile(r"[\[\d–-]|diverged")


@dataclass(frozen=True)
class Picture:
    """An inline figure with its words."""

    svg: str
    alt: str
    caption: str


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
        *_conditions(histories.get(ESGD, {}), name_seeds=True),
        Section(heading="Who led", tables=leaders_tables(comparison, histories)),
        Section(heading="What it cost", tables=[ledger_table(comparison)]),
        Section(heading="Recipe", tables=[recipe_table(comparison["recipe"])]),
        Section(heading="Our rules", tables=[recipe_table(comparison["ours"])] if comparison.get("ours") else []),
        Section(heading="Made with", tables=_made_with(manifest or {})),
    ]
    return _render(
        kicker="ESGD beside its baselines",
        title=str(comparison["task"]),
        headline=findings.headline(comparison),
        about=comparison.get("about", ""),
        sections=sections,
    )


def run_page(name: str, manifest: Mapping[str, Any], history: History) -> str:
    """The report of one run."""
    caption = (
        "Above, the fitness, lower is better: the line is the fittest individual, the band reaches to the 15th best, "
        "or to the worst. Below, how many of the elites were just born, and how many SGD updates were backed off."
    )
    picture = Picture(as_svg(figure_run(history), "run"), findings.describe_run(history), caption)
    recipe = manifest.get("recipe")
    sections = [
        Section(heading="Over the generations", pictures=[picture]),
        *_conditions({manifest.get("seed"): history}, name_seeds=False),
        Section(heading="Who led", tables=[leaders(history)]),
        Section(heading="What it cost", tables=[run_ledger(history), run_seconds(history)]),
        Section(heading="Recipe", tables=[recipe_table(recipe)] if recipe else []),
        Section(heading="Made with", tables=_made_with(manifest)),
    ]
    return _render(
        kicker="A run of ESGD", title=name, headline=findings.run_headline(history), about="", sections=sections
    )


def _performance(comparison: Comparison) -> list[Table]:
    tables = [table_1(comparison), published_table(comparison), differences_table(comparison)]
    return [table for table in tables if table is not None and table.rows]


def _paper_figures(histories: Histories) -> list[Picture]:
    return [
        Picture(
            as_svg(figure_1(histories), "figure-1"),
            findings.describe_fitness(histories),
            "Figure 1. Fitness over generations, mean over seeds; lower is better. A line is the fittest individual; "
            "a band reaches to the 15th best, or to the worst where there are fewer.",
        ),
        Picture(
            as_svg(figure_2(histories), "figure-2"),
            findings.describe_offspring(histories),
            "Figure 2. Percentage of the elites that were born in the generation, in ESGD.",
        ),
    ]


def _conditions(runs: Mapping[Any, History], *, name_seeds: bool) -> list[Section]:
    """What a reader must know before believing the numbers."""
    noted = findings.remarks(runs, name_seeds=name_seeds)
    return [
        Section(heading="The guarantee", words=[findings.guarantee(runs.values())] if runs else []),
        Section(heading="Health notes", words=["Nothing to note."] if runs and not noted else [], remarks=noted),
    ]


def _made_with(manifest: Mapping[str, Any]) -> list[Table]:
    facts = {name: manifest[name] for name in ("seed", "engine", "python", "machine", "begun") if name in manifest}
    rows = [(name, phrase(value)) for name, value in {**facts, **manifest.get("versions", {})}.items()]
    return [Table("Versions and machine", ("what", "value"), tuple(rows))] if rows else []


def _render(*, sections: Sequence[Section], **words: Any) -> str:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("jinja2", "report", "Writing the report") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"subscripts": _subscripts, "numeric": _numeric}
    template = environment.from_string(files("esgd.report").joinpath(TEMPLATE).read_text(encoding="utf-8"))
    filled = [each for each in sections if each.words or each.pictures or each.remarks or each.tables]
    return template.render(sections=filled, ours=LABELS[ESGD], **words)


def _subscripts(text: str) -> Any:
    """θ_1:μ and K_s with real subscripts, the rest escaped."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"\b([θKσ])_(\w+(?::\w+)?)", r"\1<sub>\2</sub>", str(escape(text))))


def _numeric(table: Table) -> list[bool]:
    """Which columns hold numbers, and so stand right-aligned."""
    columns = zip(*table.rows, strict=True) if table.rows else iter([()] * len(table.columns))
    return [i > 0 and all(map(_NUMBER.match, column)) for i, column in enumerate(columns)]
