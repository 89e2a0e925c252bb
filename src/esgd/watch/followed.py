"""One run that somebody else is writing: what is new is read, and nothing is ever written."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from time import thread_time, time
from typing import Any, BinaryIO

from esgd.errors import RunError
from esgd.report.records import line_fault
from esgd.report.views import facts, line_digest
from esgd.report.views.ancestry import family_tree
from esgd.run.files import open_to_read, read_table
from esgd.run.parsing import parsed
from esgd.wording import duration

PATIENCE = 60.0  # seconds without a word, at least, before a run is called silent
GENERATIONS = 5.0  # … and so many times its longest generation
SCRAP = 64  # bytes by which a file is known again
HASTE = 0.2  # seconds of work after which a look ends: no run keeps the others waiting
PIECE = 16 << 20  # bytes of a history that are read at one look, and of its longest line
SHOWN = 256 << 20  # bytes of a history that are shown
MANIFEST = 4 << 20  # bytes of a manifest that are read


class Followed:
    """Follows a run's history.jsonl from line to line.

    A last line without its end is not there yet. A line that is damaged is named, and what stands before it is shown.
    A history that was rewritten, as when a killed run is resumed, is read anew, and its `age` goes up. A long one is
    read in pieces, one at every look. Only plain files are read: a link may lead to what is nobody else's business.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.records: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.age, self.damage, self.unreadable = 0, "", ""
        self._read, self._last, self._changed, self._lock = 0, b"", 0.0, Lock()
        self._known: dict[str, Any] = {}  # the manifest …
        self._stamp: tuple[float, int, int] | None = None  # … of this file

    def look(self) -> None:
        """Read what has been added since the last look."""
        with self._lock:
            self.unreadable = ""
            try:
                with open_to_read(self.folder / "history.jsonl") as file:
                    self._catch_up(file)
            except FileNotFoundError:
                self._begin_anew()
            except RunError as error:
                self.unreadable = str(error).replace(str(self.folder), self.name)  # where it lies is not for the page
            except OSError as error:
                self.unreadable = f"{self.name} cannot be read now: {error.strerror}."

    @property
    def fault(self) -> str:
        """What is wrong with it; nothing, most often."""
        return self.unreadable or self.damage

    @property
    def k(self) -> int:
        """Generations done."""
        return int(self.lines[-1]["k"]) if self.lines else 0

    @property
    def changed(self) -> float:
        """When the run last said something, in seconds of the clock."""
        return max(_modified(self.folder / name) for name in ("history.jsonl", "manifest.json"))

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
            lines, records = [line for line in self.lines if line["k"] > k], list(self.records)
        return {"after": k, "lines": lines, "tree": family_tree(records)}

    def _catch_up(self, file: BinaryIO) -> None:
        found = os.fstat(file.fileno())
        file.seek(max(0, self._read - SCRAP))
        if file.read(min(SCRAP, self._read)) != self._last or (self.damage and found.st_mtime != self._changed):
            self._begin_anew()
        self._changed = found.st_mtime
        if self.damage:
            return
        if self._read >= SHOWN:
            self.unreadable = f"{self.name}/history.jsonl has more than {SHOWN >> 20} MiB. The rest is not shown."
            return
        file.seek(self._read)
        piece = file.read(PIECE)
        whole, ending, _ = piece.rpartition(b"\n")
        if len(piece) == PIECE and not ending:
            self.damage = self._named(f"it has more than {PIECE >> 20} MiB")
            return
        begun = thread_time()
        for text in whole.split(b"\n") if ending else ():
            self._read, self._last = self._read + len(text) + 1, (self._last + text + b"\n")[-SCRAP:]
            self.damage = self._take(text) if text.strip() else ""
            if self.damage or thread_time() - begun > HASTE:
                return

    def _take(self, text: bytes) -> str:
        """Add a generation; returns what is wrong with the line, if anything is."""
        try:
            line = parsed(text.decode("utf-8"))
        except ValueError as error:
            return self._named(f"it is not JSON ({error})")
        fault = line_fault(line, len(self.records) + 1)
        if fault:
            return self._named(fault)
        self.lines.append(line_digest(line))
        self.records.append({name: line[name] for name in ("k", "fitness", "births", "policies") if name in line})
        return ""

    def _named(self, fault: str) -> str:
        return (
            f"Line {len(self.records) + 1} of {self.name}/history.jsonl is no record of its generation: {fault}. What "
            f"stands before it is shown. Resuming the run mends the file; a run of an older format needs the version "
            f"that wrote it."
        )

    def _begin_anew(self) -> None:
        self.age += bool(self.records or self.damage)
        self.records, self.lines, self.damage, self._read, self._last = [], [], "", 0, b""

    def _status(self, planned: int | None) -> str:
        if planned is not None and self.k >= planned:
            return "finished"
        if self.damage:
            return "damaged"
        if self.unreadable and not self.lines:
            return "cannot be read"
        silent = time() - self.changed
        if not self.lines:  # nobody knows how long a first generation takes
            return f"in its first generation for {duration(silent)}"
        longest = max(sum(line["seconds"].values()) for line in self.lines)
        return "running" if silent < max(PATIENCE, GENERATIONS * longest) else f"silent for {duration(silent)}"

    def _manifest(self) -> dict[str, Any]:
        """The run's manifest, read again when it has changed; a page can do without."""
        path = self.folder / "manifest.json"
        try:
            found = path.lstat()
            stamp = (found.st_mtime, found.st_size, found.st_ino)
            if stamp != self._stamp:
                self._stamp, self._known = stamp, {}
                self._known = read_table(path, limit=MANIFEST)
        except OSError:
            return {}
        return self._known if isinstance(self._known.get("recipe", {}), dict) else {}


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
