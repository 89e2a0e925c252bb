"""history.jsonl: one line of JSON for every generation that is finished. It is written at its end only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

from esgd.errors import RunError
from esgd.run.files import open_to_append, open_to_read, replace_file
from esgd.run.line import Line, line_fault, misplaced
from esgd.run.parsing import parsed

HISTORY = "history.jsonl"
LINE_LIMIT = 64 << 20
"""Bytes of one line that are read at most; an individual takes about 500."""
HISTORY_LIMIT = 1 << 30
"""Bytes of a history that are reported or exported at most: 100 individuals for 20,000 generations."""
TAIL = 1 << 16
"""Bytes in which the last line is looked for first."""


@dataclass(frozen=True)
class Found:
    """The lines of generations 1, 2, … as far as they go; what is wrong with the one after them, if there is one;
    and whether the file has nothing else, not even a last line that was cut short."""

    lines: list[dict[str, Any]]
    fault: str = ""
    clean: bool = True


def find_lines(path: Path, fault: Callable[[Any, int], str] = misplaced, *, limit: int | None = None) -> Found:
    """Read a history to its end, or to the first line that is none of its generation, as `fault` tells.

    A last line without its end was cut short while it was written: it is not there yet. `FileNotFoundError` where
    there is no history, `RunError` for what is no plain file, or has a line without end.
    """
    lines, clean = list[dict[str, Any]](), True
    for text in _texts(path, limit=limit):
        if not text.endswith(b"\n") or not text.strip():
            clean = False
            continue
        try:
            line = parsed(text.decode("utf-8"))
        except ValueError as error:
            return Found(lines, f"is not JSON: {error}", clean=False)
        if wrong := fault(line, len(lines) + 1):
            return Found(lines, f"is no record of its generation: {wrong}", clean=False)
        lines.append(line)
    return Found(lines, clean=clean)


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines from generation 1 on, up to the first that is missing, half-written or out of order."""
    try:
        return find_lines(path).lines
    except FileNotFoundError:
        return []


def read_lines(path: Path, fault: Callable[[Any, int], str] = line_fault) -> list[Line]:
    """All lines of a history, at least one; `RunError` names the first that is no record, and says what to do."""
    try:
        found = find_lines(path, fault, limit=HISTORY_LIMIT)
    except FileNotFoundError:
        raise RunError(
            f"{str(path.parent)!r} is not the folder of a run: it has no {path.name}. Give the folder of a run, such "
            f"as the one that `esgd run` or fit(run=…) wrote."
        ) from None
    if found.fault:
        raise RunError(
            f"line {len(found.lines) + 1} of {str(path)!r} {found.fault}. Every line is one generation, and only the "
            f"last may be half-written. Restore the file from a copy, or resume the run, which mends it."
        )
    if not found.lines:
        raise RunError(
            f"{str(path)!r} has no whole line yet: there is no finished generation yet. Try again when the first one "
            f"has ended."
        )
    return cast(list[Line], found.lines)


def last_value(path: Path, *, limit: int = LINE_LIMIT) -> tuple[Any, bool]:
    """The value of the last line without reading those before it, None where it is not JSON or longer than `limit`; and
    whether another line is begun behind it."""
    with open_to_read(path) as file:
        text, begun = _last_text(file, limit)
    try:
        return parsed(text.decode("utf-8")), begun
    except ValueError:
        return None, begun


def chained(lines: Iterable[Mapping[str, Any]], before: str = "") -> str:
    """A digest of all lines, made from that of all but the last and the last. What took how long is left out: a
    checkpoint is written before it is known how long that took.
    """
    for line in lines:
        words = json.dumps({**line, "seconds": None}, ensure_ascii=False)
        before = sha256((before + words).encode()).hexdigest()
    return before


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line and wait until it is on the disk; a line that does not fit is taken back."""
    with open_to_append(path) as file:
        size = file.tell()
        try:
            file.write(spell(line))
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise


def rewrite(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Make the file hold exactly these lines."""
    replace_file(path, lambda aside: aside.write_bytes(b"".join(spell(line) for line in lines)))


def spell(line: Mapping[str, Any]) -> bytes:
    """A line as bytes; NaN and inf, which JSON has no words for, are refused."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _texts(path: Path, *, limit: int | None = None) -> Iterator[bytes]:
    """The lines as they are, one after the other; `RunError` names what is no plain file, or has no end."""
    with open_to_read(path) as file:
        for number in count(1):
            text = file.readline(LINE_LIMIT + 1)
            if len(text) > LINE_LIMIT:
                raise RunError(
                    f"line {number} of {str(path)!r} has more than {LINE_LIMIT >> 20} MiB. No generation needs as "
                    f"much. Restore the file from a copy, or resume the run, which mends it."
                )
            if limit is not None and file.tell() > limit:
                raise RunError(f"{str(path)!r} has more than {limit >> 30} GiB, more than can be shown at once.")
            if not text:
                return
            yield text


def _last_text(file: BinaryIO, limit: int) -> tuple[bytes, bool]:
    """What stands between the last two line ends of a file, and whether anything stands behind them."""
    end, size = file.seek(0, os.SEEK_END), TAIL
    while True:
        file.seek(max(0, end - size))
        before, ended, rest = file.read(size).rpartition(b"\n")
        _, parted, text = before.rpartition(b"\n")
        if (ended and parted) or size >= min(end, limit):
            return text if ended and (parted or size >= end) else b"", bool(rest)
        size *= 4
