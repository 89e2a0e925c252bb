"""history.jsonl: one line of JSON for every generation that is finished."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esgd.run.files import replace_file


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines from generation 1 on, up to the first that is missing, half-written or out of order."""
    lines: list[dict[str, Any]] = []
    if not path.is_file():
        return lines
    for text in path.read_bytes().split(b"\n"):
        try:
            line = json.loads(text)
        except ValueError:
            break
        if not isinstance(line, dict) or line.get("k") != len(lines) + 1:
            break
        lines.append(line)
    return lines


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add a line and wait until it is on the disk; a line that does not fit is taken back."""
    with path.open("ab") as file:
        size = file.tell()
        try:
            file.write(spell(line))
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, size)
            raise


def rewrite(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Make the file hold exactly these lines."""
    replace_file(path, lambda aside: aside.write_bytes(b"".join(spell(line) for line in lines)))


def spell(line: Mapping[str, Any]) -> bytes:
    """A line as bytes; NaN and inf, which JSON has no words for, are refused."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
