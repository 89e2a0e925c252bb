"""history.jsonl: one line of JSON for every generation that is finished."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from esgd.errors import RunError
from esgd.run.files import open_to_append, open_to_read, replace_file
from esgd.run.parsing import parsed

LINE_LIMIT = 64 << 20
"""Bytes of one line that are read at most; an individual takes about 500."""
HISTORY_LIMIT = 1 << 30
"""Bytes of a history that are reported or exported at most: 100 individuals for 20,000 generations."""


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines from generation 1 on, up to the first that is missing, half-written or out of order."""
    lines: list[dict[str, Any]] = []
    try:
        for text in texts(path):
            line = parsed(text.decode("utf-8"))
            if not text.endswith(b"\n") or not isinstance(line, dict) or line.get("k") != len(lines) + 1:
                break
            lines.append(line)
    except (FileNotFoundError, ValueError):
        pass  # what stands before is whole
    return lines


def whole_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Number and value of every line; the last may be half-written, and then it is not there yet.

    `FileNotFoundError` where there is no history, `RunError` for a line that is no JSON.
    """
    fault = ""
    for number, text in enumerate(filter(bytes.strip, texts(path, limit=HISTORY_LIMIT)), start=1):
        if fault:
            raise RunError(
                f"line {number - 1} of {str(path)!r} is not JSON: {fault}. Every line is one generation, and only the "
                f"last may be half-written. Restore the file from a copy, or resume the run, which mends it."
            )
        try:
            yield number, parsed(text.decode("utf-8"))
        except ValueError as error:
            fault = str(error)


def texts(path: Path, *, limit: int | None = None) -> Iterator[bytes]:
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
