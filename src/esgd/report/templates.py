"""Pages from templates. The one file that imports jinja2, and only when it writes.

Autoescape is on: a name with markup in it is shown, not executed. The only markup that is let through is our own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from esgd.errors import MissingExtraError
from esgd.report.forms import as_csv, as_latex, as_markdown
from esgd.report.tables import Table

if TYPE_CHECKING:
    from jinja2 import Environment

_NUMBER = re.compile(r"[\[\d–-]|diverged")


@dataclass(frozen=True)
class Copy:
    """A table in another form, to be saved from the page."""

    form: str
    file: str
    address: str


def render(template: str, *, package: str = "esgd.report", **words: Any) -> str:
    """Fill a template that lies in a package; every page has the same style."""
    text = files(package).joinpath(template).read_text(encoding="utf-8")
    style = files("esgd.report").joinpath("page.css").read_text(encoding="utf-8")
    return str(environment().from_string(text).render(style=style, **words))


def environment() -> Environment:
    """What templates are read with."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("jinja2", "report", "Writing the page") from error
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"subscripts": _subscripts, "numeric": _numeric, "copies": _copies}
    return made


def _subscripts(text: str) -> Any:
    """θ_1:μ and K_s with real subscripts, the rest escaped."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"\b([θKσ])_(\w+(?::\w+)?)", r"\1<sub>\2</sub>", str(escape(text))))


def _numeric(table: Table) -> list[bool]:
    """Which columns hold numbers, and so stand right-aligned."""
    columns = zip(*table.rows, strict=True) if table.rows else iter([()] * len(table.columns))
    return [i > 0 and all(map(_NUMBER.match, column)) for i, column in enumerate(columns)]


def _copies(table: Table) -> list[Copy]:
    """The table as LaTeX, Markdown and CSV, inside the page."""
    name = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-") or "table"
    forms = {"LaTeX": ("tex", as_latex), "Markdown": ("md", as_markdown), "CSV": ("csv", as_csv)}
    return [
        Copy(form, f"{name}.{ending}", f"data:text/plain;charset=utf-8,{quote(spell(table))}")
        for form, (ending, spell) in forms.items()
    ]
