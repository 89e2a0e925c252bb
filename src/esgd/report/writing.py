"""The files of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esgd.errors import RunError
from esgd.report.arms import Comparison, Histories, finite
from esgd.report.beside import Run, grouped, paired_table, reached_table, runs_page
from esgd.report.figures import figure_1, figure_2, figure_run, write_png
from esgd.report.forms import as_markdown
from esgd.report.numerals import spelt
from esgd.report.page import comparison_page, run_page
from esgd.report.records import line_fault
from esgd.report.tables import differences_table, leaders_tables, ledger_table, published_table, table_1

PAGE = "report.html"


def write_comparison(
    comparison: Comparison, histories: Histories, folder: Path, *, manifest: Mapping[str, Any] | None = None
) -> Path:
    """Write comparison.json, table-1.md, figure-1.png, figure-2.png and report.html; returns the path of the last.

    The data come first: they are kept even where the packages that draw are missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = json.dumps(_json(comparison), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "comparison.json").write_text(f"{words}\n", encoding="utf-8")
    tables = (
        table_1(comparison),
        published_table(comparison),
        differences_table(comparison),
        ledger_table(comparison),
        *leaders_tables(comparison, histories),
    )
    words = "\n".join(as_markdown(table) for table in tables if table is not None and table.rows)
    (folder / "table-1.md").write_text(words, encoding="utf-8")
    write_png(figure_1(histories), folder / "figure-1.png")
    write_png(figure_2(histories), folder / "figure-2.png")
    return _write_page(folder, comparison_page(comparison, histories, manifest=manifest))


def write_run(folder: Path) -> Path:
    """Read a run's history and manifest, write run.png and report.html; returns the path of the latter."""
    history = read_lines(folder / "history.jsonl")
    write_png(figure_run(history), folder / "run.png")
    return _write_page(folder, run_page(spelt(folder.resolve().name), _manifest(folder / "manifest.json"), history))


def write_runs(folders: Sequence[Path], out: Path) -> Path:
    """Read several runs, write table-1.md and report.html about all of them; returns the path of the latter."""
    names = _names(folders)
    runs = [
        Run(name, _manifest(folder / "manifest.json"), read_lines(folder / "history.jsonl"))
        for name, folder in zip(names, folders, strict=True)
    ]
    page, groups = runs_page(runs), grouped(runs)
    if out.exists() and not out.is_dir():
        raise RunError(f"{str(out)!r} is a file. The report is written into a folder. Choose another with --out.")
    out.mkdir(parents=True, exist_ok=True)
    tables = (reached_table(groups), paired_table(groups))
    words = "\n".join(as_markdown(table) for table in tables if table.rows)
    (out / "table-1.md").write_text(words, encoding="utf-8")
    return _write_page(out, page)


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of their paths that tell the folders apart."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise RunError("A run is given twice. Every run is compared with the others, so give each of them once.")
    length = next(n for n in range(1, max(map(len, parts)) + 1) if len({p[-n:] for p in parts}) == len(parts))
    return [spelt("/".join(each[-length:])) for each in parts]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a history; a last line that a running or killed process left half-written is not there yet."""
    if not path.is_file():
        raise RunError(
            f"{str(path.parent)!r} has no history.jsonl. A report is made from the lines that a run writes there, one "
            f"for every generation. Give the folder of a run, such as the one that fit(run=…) was given."
        )
    texts = [text for text in path.read_text(encoding="utf-8", errors="replace").split("\n") if text.strip()]
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, start=1):
        try:
            line = json.loads(text)
        except ValueError as error:
            if number < len(texts):
                raise RunError(
                    f"line {number} of {str(path)!r} is not JSON: {error}. Every line is one generation, and only the "
                    f"last may be half-written. Restore the file from a copy, or resume the run, which mends it."
                ) from error
            continue
        fault = line_fault(line)
        if fault:
            raise RunError(
                f"line {number} of {str(path)!r} is no record of a generation: {fault}. A report is drawn from what a "
                f"run writes about each generation. Restore the file from a copy, or give the folder of another run."
            )
        lines.append(line)
    if not lines:
        raise RunError(
            f"{str(path)!r} has no whole line yet. A report needs at least one finished generation. Try again when the "
            f"first one has ended."
        )
    return lines


def _manifest(path: Path) -> dict[str, Any]:
    """What the run is made of; a page can do without, but not with a damaged one."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(read, dict):
        raise _damaged(path, f"it is a {type(read).__name__}, not an object")
    for name in ("recipe", "versions"):
        if not isinstance(read.get(name, {}), dict):
            raise _damaged(path, f"{name!r} in it is a {type(read[name]).__name__}, not an object")
    return read


def _damaged(path: Path, fault: str) -> RunError:
    return RunError(
        f"{str(path)!r} is no manifest: {fault}. It says which recipe, seed and versions a run was made with. Restore "
        f"the file from a copy, or remove it for a report without them."
    )


def _write_page(folder: Path, text: str) -> Path:
    path = folder / PAGE
    path.write_text(text, encoding="utf-8")
    return path


def _json(value: Any) -> Any:
    """JSON has no inf and no NaN: what diverged is null."""
    if isinstance(value, Mapping):
        return {str(name): _json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return finite(value) if isinstance(value, float) else value
