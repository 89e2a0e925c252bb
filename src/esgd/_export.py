"""A run as files for others' tools: CSV, which everything reads, or Parquet. The one file that imports pyarrow."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from esgd.errors import MissingExtraError, RecipeError, RunError, did_you_mean
from esgd.run.files import blaming, explained, read_table, replace_file, replace_words
from esgd.run.history import HISTORY, read_lines
from esgd.run.line import misplaced
from esgd.run.tables import Row, csv_cell, generations, individuals

MARK = "export.json"
_NAMES = re.compile(r"generation(s|-\d{4,})\.(csv|parquet)")


def export(run: Path, out: Path | None = None, *, format: str = "csv") -> list[Path]:  # noqa: A002  # as people say
    """Write the finished generations of a run; returns the files.

    `generations` has a row for every generation, and `generation-0001` and so on, one file each, a row for every
    individual; see `esgd.run.tables`. They go into `out`, beside the run as RUN-export if it is not given. A folder
    that has anything else in it is left alone; an earlier export of the same run is brought up to date.
    """
    write = _writer(format)
    history = read_lines(run / HISTORY, misplaced)
    with blaming(run / HISTORY, "laid out as tables"):
        lives, overview = individuals(history), generations(history)
        tables = {f"generations.{format}": overview} | {f"generation-{row['k']:04d}.{format}": [] for row in overview}
        for row in lives:
            tables[f"generation-{row['k']:04d}.{format}"].append(row)
    out = out or _beside(run)
    earlier = _claim(out, run)
    with explained(out, "Exporting", "The run itself is untouched."), blaming(run / HISTORY, "laid out as tables"):
        out.mkdir(parents=True, exist_ok=True)
        replace_words(out / MARK, json.dumps({"run": str(run.resolve()), "files": list(tables)}, indent=2))
        for name, rows in tables.items():
            replace_file(out / name, partial(write, rows=rows, like=overview if rows is overview else lives))
        for name in earlier - tables.keys():
            (out / name).unlink(missing_ok=True)
    return [out / name for name in tables]


def _beside(run: Path) -> Path:
    """RUN-export; a link of that name would lead to a folder that the caller has not named."""
    out = run.resolve().with_name(f"{run.resolve().name}-export")
    if out.is_symlink():
        raise RunError(f"{str(out)!r} is a link. An export stays beside its run. Name another folder with --out.")
    return out


def _claim(out: Path, run: Path) -> set[str]:
    """The files that an earlier export of this run left in the folder; whatever else is there is not ours to touch."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{str(out)!r} is a file. An export is a folder of files. Choose another --out.")
    there = {path.name: path for path in out.iterdir()} if out.is_dir() else {}
    ours = _marked(out, run)
    halves = {f".{name}.new" for name in (MARK, *ours)}  # of an export that was killed
    strangers = sorted(
        name for name, path in there.items() if name not in ours | halves or (path.is_dir() and not path.is_symlink())
    )
    if strangers:
        raise RunError(
            f"{str(out)!r} is not empty and is no export of this run (it holds {', '.join(strangers[:3])}…). Nothing "
            f"was written. Choose a new folder with --out."
        )
    return (ours | halves) - {MARK}


def _marked(out: Path, run: Path) -> set[str]:
    """The names of an earlier export of this run; a list with a name that no export has is not ours."""
    try:
        mark = read_table(out / MARK)
    except OSError:
        return set()
    names, of_this_run = mark.get("files"), mark.get("run") == str(run.resolve())
    if not of_this_run or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return set()
    return {MARK, *names} if all(map(_NAMES.fullmatch, names)) else set()


class Write(Protocol):
    """Writes rows; `like` are those of the whole table, so that all its files have columns of the same types."""

    def __call__(self, path: Path, *, rows: Sequence[Row], like: Sequence[Row]) -> None: ...


def _writer(format_: str) -> Write:
    writers: dict[str, Write] = {"csv": _csv, "parquet": _parquet}
    if format_ not in writers:
        raise RecipeError(f"format={format_!r} is not known. {did_you_mean(format_, writers)}")
    if format_ == "parquet":
        _pyarrow()
    return writers[format_]


def _csv(path: Path, *, rows: Sequence[Row], like: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(csv_cell, like[0]))
        writer.writerows(map(csv_cell, row.values()) for row in rows)


def _parquet(path: Path, *, rows: Sequence[Row], like: Sequence[Row]) -> None:
    package = _pyarrow()
    columns = dict[str, Any]()
    for name in like[0]:
        values = [row[name] for row in rows]
        try:
            columns[name] = package.array(values, package.array([row[name] for row in like]).type)
        except (package.ArrowException, OverflowError):  # a setting that is a number for one, a word for another
            columns[name] = package.array([None if value is None else str(value) for value in values], package.string())
    package.parquet.write_table(package.table(columns), path)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "export", "Parquet") from error
    return pyarrow
