"""A table as text: Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import html
import re
from io import StringIO

from esgd.report.tables import Table
from esgd.run.tables import csv_cell

_SUBSCRIPT = re.compile(r"([θKσ])_(\w+(?::\w+)?)")
_MATHEMATICS = {
    "θ": r"\theta",
    "μ": r"\mu", "λ": r"\lambda", "σ": r"\sigma", "ρ": r"\rho", "π": r"\pi", "β": r"\beta", "γ": r"\gamma",
    "−": "-",
    "±": r"\pm", "×": r"\times", "↔": r"\leftrightarrow", "≤": r"\le", "·": r"\cdot", "<": "<", ">": ">", "|": "|",
}  # fmt: skip
_TEXT = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\n": " ",
    "…": r"\dots{}",
    "–": "--",
    "’": "'",
    "“": "``",
    "”": "''",
    **{letter: f"${command}$" for letter, command in _MATHEMATICS.items()},
}


def as_markdown(table: Table) -> str:
    """A pipe table under its title; tags in a cell are shown as text."""
    head, *body = [[_plain(cell) for cell in row] for row in (table.columns, *table.rows)]
    rule = ["---", *("---:" for _ in table.columns[1:])]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
    return "\n\n".join(part for part in (f"**{_plain(table.title)}**", lines, _plain(table.caption)) if part) + "\n"


def as_latex(table: Table) -> str:
    """A table environment with the rules of booktabs; letters that need mathematics are in it."""
    columns = "l" + "r" * (len(table.columns) - 1)
    rows = [" & ".join(map(_latex, row)) + r" \\" for row in (table.columns, *table.rows)]
    rows = [f"{{[}}{row[1:]}" if row.startswith("[") else row for row in rows]  # no optional argument of the row before
    lines = (
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(' '.join(filter(None, (table.title.removesuffix('.') + '.', table.caption))))}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rows[0],
        r"\midrule",
        *rows[1:],
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    )
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """The columns and rows; title and caption are for people. No cell is a formula."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(csv_cell, row) for row in (table.columns, *table.rows))
    return text.getvalue()


def _latex(text: str) -> str:
    """Escaped for LaTeX.

    >>> print(_latex("50% of θ_1:μ"))
    50\\% of $\\theta_{1:\\mu}$
    """
    parts, end = [], 0
    for found in _SUBSCRIPT.finditer(text):
        symbol, index = ("".join(_MATHEMATICS.get(letter, letter) for letter in group) for group in found.groups())
        parts += [*(_TEXT.get(letter, letter) for letter in text[end : found.start()]), f"${symbol}_{{{index}}}$"]
        end = found.end()
    return "".join([*parts, *(_TEXT.get(letter, letter) for letter in text[end:])])


def _plain(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
