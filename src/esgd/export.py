"""A run as files for others' tools: CSV, which everything reads, or Parquet. The one file that imports pyarrow."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from esgd.errors import MissingExtraError, RecipeError, RunError, did_you_mean
from esgd.run.files import explained, replace_file
from esgd.tables import Row, generations, individuals

MARK = "export.json"


def export(run: Path, out: Path | None = None, *, format: str = "csv") -> list[Path]:  # noqa: A002  # as people say
    """Write the finished generations of a run; returns the files.

    `generations` has a row for every generation, and `generation-0001` and so on, one file each, a row for every
    individual; see `esgd.tables`. They go into `out`, beside the run as RUN-export if it is not given. A folder that
    has anything else in it is left alone; an earlier export of the same run is brought up to date.
    """
    write = _writer(format)
    history, out = _history(run), out or run.resolve().with_name(f"{run.resolve().name}-export")
    try:
        everybody, overview = individuals(history), generations(history)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise RunError(
            f"{str(run / 'history.jsonl')!r} cannot be laid out as tables: {type(error).__name__} {error}. Its lines "
            f"are not what a run writes. Restore the file from a copy."
        ) from error
    tables = {f"generations.{format}": overview} | {
        f"generation-{line['k']:04d}.{format}": [row for row in everybody if row["k"] == line["k"]] for line in history
    }
    earlier = _claim(out, run)
    with explained(out, "Exporting", "The run itself is untouched."):
        out.mkdir(parents=True, exist_ok=True)
        mark = json.dumps({"run": str(run.resolve()), "files": list(tables)}, indent=2)
        replace_file(out / MARK, lambda aside: aside.write_text(mark, encoding="utf-8"))
        for name, rows in tables.items():
            replace_file(out / name, partial(write, rows=rows, like=overview if rows is overview else everybody))
        for name in earlier - tables.keys():
            (out / name).unlink(missing_ok=True)
    return [out / name for name in tables]


def _history(run: Path) -> list[dict[str, Any]]:
    """The lines of the generations that are finished; a last one that is half-written is not there yet."""
    path = run / "history.jsonl"
    if not path.is_file():
        raise RunError(
            f"{str(run)!r} is not the folder of a run: it has no history.jsonl. Give the folder that `esgd run` or "
            f"fit(run=…) wrote."
        )
    texts = [text for text in path.read_text(encoding="utf-8", errors="replace").split("\n") if text.strip()]
    lines = list[dict[str, Any]]()
    for number, text in enumerate(texts, start=1):
        try:
            line = json.loads(text)
        except ValueError as error:
            if number == len(texts):
                break
            raise _damaged(path, number, f"it is not JSON ({error})") from error
        if not isinstance(line, Mapping) or line.get("k") != number:
            raise _damaged(path, number, f"it is not the record of generation {number}")
        lines.append(dict(line))
    if not lines:
        raise RunError(f"{str(path)!r} has no finished generation yet. Try again when the first one has ended.")
    return lines


def _damaged(path: Path, number: int, fault: str) -> RunError:
    return RunError(
        f"line {number} of {str(path)!r} is damaged: {fault}. Every line is one generation. Restore the file from a "
        f"copy, or resume the run, which mends it."
    )


def _claim(out: Path, run: Path) -> set[str]:
    """The files that an earlier export of this run left in the folder; whatever else is there is not ours to touch."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{str(out)!r} is a file. An export is a folder of files. Choose another --out.")
    there = {path.name for path in out.iterdir()} if out.is_dir() else set[str]()
    ours = _marked(out, run)
    strangers = sorted(there - ours)
    if strangers:
        raise RunError(
            f"{str(out)!r} is not empty and is no export of this run (it holds {', '.join(strangers[:3])}…). Nothing "
            f"was written. Choose a new folder with --out."
        )
    return ours - {MARK}


def _marked(out: Path, run: Path) -> set[str]:
    """The names of an earlier export of this run."""
    try:
        mark = json.loads((out / MARK).read_text(encoding="utf-8"))
        return {MARK, *map(str, mark["files"])} if mark["run"] == str(run.resolve()) else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


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
        writer = csv.DictWriter(file, list(like[0]))
        writer.writeheader()
        writer.writerows(rows)


def _parquet(path: Path, *, rows: Sequence[Row], like: Sequence[Row]) -> None:
    package = _pyarrow()
    columns = dict[str, Any]()
    for name in like[0]:
        values = [row[name] for row in rows]
        try:
            columns[name] = package.array(values, package.array([row[name] for row in like]).type)
        except package.ArrowInvalid:  # a setting that is a number for one and a word for another
            columns[name] = package.array([None if value is None else str(value) for value in values], package.string())
    package.parquet.write_table(package.table(columns), path)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "export", "Parquet") from error
    return pyarrow
