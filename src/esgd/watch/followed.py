"""One run that somebody else is writing: what is new is read, and nothing is ever written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

from esgd._text.wording import duration
from esgd.errors import RunError
from esgd.report.views import facts, line_digest
from esgd.report.views.ancestry import family_tree
from esgd.run.following import PIECE, HistoryFollower
from esgd.run.history import HISTORY, last_value
from esgd.run.line import Line, line_fault
from esgd.run.manifest import MANIFEST, read_shown
from esgd.run.stop import STOP, Stop, read_stop

PATIENCE = 60.0  # seconds without a word, at least, before a run is called silent
GENERATIONS = 5.0  # … and so many times its longest generation
MANIFEST_LIMIT = 4 << 20  # bytes of a manifest that are read
NO_FILE = (0.0, 0, 0)
RECORDED = ("k", "fitness", "births", "policies")  # what the family tree is drawn from


class Followed:
    """One run, as far as it is known.

    Until somebody asks for its generations, only its last line is read: `look` then learns no more than k. A line that
    is damaged is named, and what stands before it is shown. When a history was rewritten, as when a killed run is
    resumed, the `age` of what is known goes up.
    """

    def __init__(self, folder: Path, name: str, *, whole: bool = True) -> None:
        self.folder, self.name, self.whole = folder, name, whole
        self.records: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.k, self.age, self.unreadable = 0, 0, ""
        self._history, self._lock = HistoryFollower(folder / HISTORY), Lock()
        self._longest, self._glanced = 0.0, NO_FILE
        self._known: dict[str, Any] = {}  # the manifest …
        self._stamp = NO_FILE  # … of this file
        self._stop_known, self._stop_stamp = Stop(), NO_FILE

    def look(self) -> None:
        """Read what has been added since the last look."""
        with self._lock:
            self.unreadable = ""
            try:
                if self.whole or self._history.fault or not self._glance():
                    self._take(self._history.new_lines())
            except RunError as error:
                self.unreadable = str(error).replace(str(self.folder), self.name)  # where it lies is not for the page
            except OSError as error:
                self.unreadable = f"{self.name} cannot be read now: {error.strerror}."

    @property
    def damage(self) -> str:
        """What is wrong with a line of its history; nothing, most often."""
        fault = self._history.fault
        return fault and (
            f"Line {self._history.done + 1} of {self.name}/{HISTORY} is no record of its generation: {fault}. What "
            f"stands before it is shown. Resuming the run mends the file; a run of an older format needs the version "
            f"that wrote it."
        )

    @property
    def fault(self) -> str:
        """What is wrong with it; nothing, most often."""
        return self.unreadable or self.damage

    @property
    def changed(self) -> float:
        """When the run last said something, in seconds of the clock."""
        return max(_stamp(self.folder / name)[0] for name in (HISTORY, MANIFEST))

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
        if not self.whole:
            self.whole = True
            self.look()
        with self._lock:
            lines, records = self.lines[max(k, 0) :], list(self.records)
        return {"after": k, "lines": lines, "tree": family_tree(records)}

    def _take(self, lines: Sequence[Line]) -> None:
        if self.age != self._history.anew:
            self.age, self.records, self.lines, self._longest = self._history.anew, [], [], 0.0
        for line in lines:
            self.lines.append(line_digest(line))
            self.records.append({name: value for name, value in line.items() if name in RECORDED})
            self._longest = max(self._longest, sum(self.lines[-1]["seconds"].values()))
        self.k = self._history.done

    def _glance(self) -> bool:
        """Learn k from the last line alone, where that is a record; a file that has not changed is not read again."""
        stamp = _stamp(self._history.path)
        if stamp != self._glanced:
            try:
                line, _ = last_value(self._history.path, limit=PIECE)
            except FileNotFoundError:
                return False
            if not isinstance(line, dict) or line_fault(line, line.get("k", 0)):
                return False
            self.k, self._longest, self._glanced = line["k"], sum(line_digest(line)["seconds"].values()), stamp
        return True

    def _status(self, planned: int | None) -> str:
        if planned is not None and self.k >= planned:
            return "finished"
        if self.k and self._stop().k == self.k:
            return f"stopped early: {self._stop().why}"
        if self.damage:
            return "damaged"
        if self.unreadable and not self.lines:
            return "cannot be read"
        silent = time() - self.changed
        if not self.k:  # how long a first generation takes is not known
            return f"in its first generation for {duration(silent)}"
        return "running" if silent < max(PATIENCE, GENERATIONS * self._longest) else f"silent for {duration(silent)}"

    def _stop(self) -> Stop:
        """Why the run was stopped, read again when that has changed; a page can do without."""
        stamp = _stamp(self.folder / STOP)
        if stamp != self._stop_stamp:
            try:
                self._stop_stamp, self._stop_known = stamp, Stop()
                self._stop_known = read_stop(self.folder, limit=MANIFEST_LIMIT)
            except OSError:
                pass  # said by `esgd resume`
        return self._stop_known

    def _manifest(self) -> dict[str, Any]:
        """The run's manifest, read again when it has changed; a page can do without."""
        stamp = _stamp(self.folder / MANIFEST)
        if stamp != self._stamp:
            try:
                self._stamp, self._known = stamp, {}
                self._known = read_shown(self.folder / MANIFEST, limit=MANIFEST_LIMIT)
            except OSError:
                pass  # said by `esgd verify`
        return self._known


def _stamp(path: Path) -> tuple[float, int, int]:
    """What changes when a file does."""
    try:
        found = path.lstat()
    except OSError:
        return NO_FILE
    return found.st_mtime, found.st_size, found.st_ino
