"""Tables on the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from esgd._serialization import encode
from esgd.policies import phrase
from esgd.report import Run, Table, beside_tables, differences_table, ledger_table, published_table, table_1

WIDE = 120  # columns


Show = Callable[[dict[str, Any], Console], None]


def print_value(as_json: bool, value: dict[str, Any], show: Show) -> None:
    """Print one JSON object, or what `show` makes of it."""
    if as_json:
        print(json.dumps(encode(value), indent=2, ensure_ascii=False))
    else:
        show(value, Console())


def show_comparison(comparison: dict[str, Any], console: Console) -> None:
    """Print the paper's table 1 for this task, the differences between the arms, and the ledger."""
    tables = (table_1(comparison), published_table(comparison), differences_table(comparison), ledger_table(comparison))
    _show_tables(comparison, [table for table in tables if table is not None and table.rows], console)


def show_contest(contest: dict[str, Any], console: Console, *, runs: Sequence[Run]) -> None:
    """Print what rules reached at equal work, and how far the first are ahead of the others."""
    _show_tables(contest, beside_tables(runs), console)


def _show_tables(compared: dict[str, Any], tables: Sequence[Table], console: Console) -> None:
    console.print(f"\n{compared['task']}: {compared['about']}\n", highlight=False, markup=False)
    for table in tables:
        console.print(table.title, markup=False, style="bold", highlight=False)
        console.print(_rich(table, console.width))
        console.print(table.caption, "", sep="\n", markup=False, highlight=False)


def show_result(summary: dict[str, Any], console: Console) -> None:
    """Print the result of a run."""
    leader = phrase(summary["leader"]) if summary["leader"] else "untrained"
    known = {name: "–" if value is None else f"{value:.4g}" for name, value in summary["test"].items()}
    metrics = "  ".join(f"{name} {value}" for name, value in known.items())
    console.print(
        f"fitness {summary['fitness']:.6g}" + (f"   test: {metrics}" if metrics else ""),
        f"guarantee held in {summary['guarantee_held']} of {summary['generations']} generations",
        *([f"stopped early: {summary['stopped']}"] if summary["stopped"] else []),
        f"leader: {leader}",
        *([summary["verdict"]] if summary["verdict"] else []),
        f"model: {summary['run']}/model.safetensors",
        sep="\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def show_words(words: str, value: dict[str, Any], console: Console) -> None:
    """Print what is said of a value."""
    console.print(words, highlight=False, markup=False, soft_wrap=True)


def _rich(table: Table, width: int) -> RichTable:
    """A table whose cells never wrap; a narrow terminal shows means without their deviations."""
    rows = [[escape(cell if width >= WIDE else cell.partition(" ± ")[0]) for cell in row] for row in table.rows]
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False)
    for number, column in enumerate(table.columns):
        widest = max(map(cell_len, [*column.split(), *(row[number] for row in rows)]))
        drawn.add_column(escape(column), justify="left" if number == 0 else "right", width=widest)
    for row in rows:
        drawn.add_row(*row)
    return drawn
