"""One run that somebody else is writing: what is new is read, and nothing is ever written."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from esgd.report.records import line_fault
from esgd.report.views import facts, line_digest
from esgd.report.views.ancestry import family_tree

PATIENCE = 60.0  # seconds without a word, at least, before a run is called silent
GENERATIONS = 5.0  # … and so many times its longest generation


class Followed:
    """Follows a run's history.jsonl from line to line.

    A last line without its end is not there yet. A line that is damaged is named, and what stands before it is shown.
    A history that was rewritten, as when a killed run is resumed, is read anew, and its `age` goes up.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.records: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.fault, self.age = "", 0
        self._read, self._inode, self._lock = 0, -1, Lock()

    def look(self) -> None:
        """Read what has been added since the last look."""
        with self._lock:
            try:
                self._catch_up(self.folder / "history.jsonl")
            except FileNotFoundError:
                self._begin_anew()
            except OSError as error:
                self.fault = f"{self.name} cannot be read: {error.strerror}."

    @property
    def k(self) -> int:
        """Generations done."""
        return int(self.lines[-1]["k"]) if self.lines else 0

    @property
    def changed(self) -> float:
        """When the run last said something, in seconds of the clock."""
        times = [_modified(self.folder / name) for name in ("history.jsonl", "manifest.json")]
        return max(times)

    def facts(self) -> dict[str, Any]:
        """What a list of runs says of this one."""
        known = facts(self.name, self._manifest())
        return {
            **known,
            "k": self.k,
            "status": self._status(known["generations"]),
            "fault": self.fault,
            "age": self.age,
            "version": f"{self.age}.{len(self.lines)}",
        }

    def after(self, k: int) -> dict[str, Any]:
        """The generations after k, and the family tree as it stands now."""
        with self._lock:
            return {
                "after": k,
                "lines": [line for line in self.lines if line["k"] > k],
                "tree": family_tree(self.records),
            }

    def _catch_up(self, path: Path) -> None:
        with path.open("rb") as file:
            found = path.stat()
            if found.st_ino != self._inode or found.st_size < self._read:
                self._begin_anew()
                self._inode = found.st_ino
            if self.fault:
                return
            file.seek(self._read)
            whole, ending, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(ending)
        for text in filter(None, whole.split(b"\n")):
            self._take(text)
            if self.fault:
                return

    def _take(self, text: bytes) -> None:
        try:
            line = json.loads(text)
            fault = line_fault(line)
        except ValueError as error:
            fault = f"it is not JSON ({error})"
        if fault:
            self.fault = (
                f"Line {len(self.records) + 1} of {self.name}/history.jsonl is no record of a generation: {fault}. "
                f"What stands before it is shown. Resuming the run mends the file; a run of an older format needs the "
                f"version that wrote it."
            )
            return
        self.records.append(line)
        self.lines.append(line_digest(line))

    def _begin_anew(self) -> None:
        self.age += bool(self.records)
        self.records, self.lines, self.fault, self._read, self._inode = [], [], "", 0, -1

    def _status(self, planned: int | None) -> str:
        if planned is not None and self.k >= planned:
            return "finished"
        longest = max((sum(line["seconds"].values()) for line in self.lines), default=0.0)
        silent = time() - self.changed
        return "running" if silent < max(PATIENCE, GENERATIONS * longest) else f"silent for {_time(silent)}"

    def _manifest(self) -> dict[str, Any]:
        """The run's manifest; a page can do without."""
        try:
            read = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return read if isinstance(read, dict) and isinstance(read.get("recipe", {}), dict) else {}


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _time(seconds: float) -> str:
    for length, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= length:
            n = int(seconds // length)
            return f"{n} {unit}{'s' if n > 1 else ''}"
    return f"{int(seconds)} seconds"
