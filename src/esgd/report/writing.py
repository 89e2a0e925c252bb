"""The files of a report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from esgd.errors import RunError
from esgd.report.arms import Comparison, Histories, finite
from esgd.report.beside import Run, beside_tables, runs_page
from esgd.report.figures import figure_1, figure_2, figure_run, write_png
from esgd.report.forms import as_markdown
from esgd.report.numerals import spelt
from esgd.report.page import comparison_page, described, run_page
from esgd.report.tables import Table, differences_table, first_leaders, ledger_table, published_table, table_1
from esgd.run.files import blaming, explained, replace_words
from esgd.run.history import HISTORY, read_lines
from esgd.run.manifest import MANIFEST, read_shown
from esgd.run.stop import read_stop

PAGE = "report.html"


def write_comparison(
    comparison: Comparison, histories: Histories, folder: Path, *, manifest: Mapping[str, Any] | None = None
) -> Path:
    """Write comparison.json, table-1.md, figure-1.png, figure-2.png and report.html; returns the path of the last.

    The data come first: they are kept even where the packages that draw are missing.
    """
    words = json.dumps(_json(comparison), indent=2, ensure_ascii=False, allow_nan=False)
    tables = (
        table_1(comparison),
        published_table(comparison),
        differences_table(comparison),
        ledger_table(comparison),
        first_leaders(histories),
    )
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        replace_words(folder / "comparison.json", f"{words}\n")
        replace_words(folder / "table-1.md", _markdown(table for table in tables if table is not None))
        write_png(figure_1(histories), folder / "figure-1.png")
        write_png(figure_2(histories), folder / "figure-2.png")
        replace_words(folder / PAGE, comparison_page(comparison, histories, manifest=manifest))
    return folder / PAGE


def write_run(folder: Path) -> Path:
    """Read a run's history and manifest, write run.png and report.html; returns the path of the latter."""
    manifest, history, stop = _manifest(folder / MANIFEST), read_lines(folder / HISTORY), read_stop(folder)
    stopped = spelt(stop.why) if stop.k == len(history) else ""
    with blaming(folder / HISTORY, "shown"):
        figure = figure_run(history)
        page = run_page(spelt(folder.resolve().name), manifest, history, stopped=stopped)
    with _writing(folder):
        write_png(figure, folder / "run.png")
        replace_words(folder / PAGE, page)
    return folder / PAGE


def write_runs(folders: Sequence[Path], out: Path) -> Path:
    """Read several runs, write table-1.md and report.html about all of them; returns the path of the latter."""
    names = _names(folders)
    runs = [
        Run(name, _manifest(folder / MANIFEST), read_lines(folder / HISTORY))
        for name, folder in zip(names, folders, strict=True)
    ]
    with blaming(" or ".join(str(folder / HISTORY) for folder in folders), "shown"):
        return write_beside(runs, out)


def write_beside(runs: Sequence[Run], out: Path) -> Path:
    """Write table-1.md and report.html about several runs; returns the path of the latter."""
    page, words = runs_page(runs), _markdown(beside_tables(runs))
    if out.exists() and not out.is_dir():
        raise RunError(f"{str(out)!r} is a file. The report is written into a folder. Choose another with --out.")
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        replace_words(out / "table-1.md", words)
        replace_words(out / PAGE, page)
    return out / PAGE


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of their paths that tell the folders apart."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise RunError("A run is given twice. Every run is compared with the others, so give each of them once.")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({p[-n:] for p in parts}) == len(parts))
    return [spelt("/".join(each[-length:])) for each in parts]


def _manifest(path: Path) -> dict[str, Any]:
    """What the run is made of; a page can do without, but not with a damaged one."""
    try:
        read = read_shown(path)
        with blaming(path, "shown"):
            described(read)
    except RunError as error:
        raise RunError(
            f"{error} It says which recipe, seed and versions a run was made with. Restore the file from a copy, or "
            f"remove it for a report without them."
        ) from error
    return read


def _writing(folder: Path) -> AbstractContextManager[None]:
    return explained(folder, "Writing the report", "The runs themselves are untouched.")


def _markdown(tables: Iterable[Table]) -> str:
    return "\n".join(as_markdown(table) for table in tables if table.rows)


def _json(value: Any) -> Any:
    """JSON has no inf and no NaN: what diverged is null."""
    if isinstance(value, Mapping):
        return {str(name): _json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return finite(value) if isinstance(value, float) else value
