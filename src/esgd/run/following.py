"""A history that another process writes: what is new in it, and nothing twice."""

from __future__ import annotations

import os
from pathlib import Path
from time import thread_time
from typing import BinaryIO

from esgd.errors import RunError
from esgd.run.files import open_to_read
from esgd.run.line import Line, line_fault
from esgd.run.parsing import parsed

SCRAP = 64  # bytes by which a file is known again
HASTE = 0.2  # seconds of work after which a look ends: no run keeps the others waiting
PIECE = 16 << 20  # bytes of a history that are read at one look, and of its longest line
SHOWN = 256 << 20  # bytes of a history that are shown


class HistoryFollower:
    """Reads a history from line to line while it grows.

    A last line without its end is not there yet. `fault` says what is wrong with the first line that is no record;
    nothing behind it is read. A history that was rewritten, as when a killed run is resumed, is read anew: `anew`
    counts how often, and `done` the lines since. A long one is read in pieces.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.done, self.anew, self.fault = path, 0, 0, ""
        self._read, self._last, self._changed = 0, b"", 0.0

    def new_lines(self) -> list[Line]:
        """The lines that were added since the last call, or, if `anew` has changed, from the first one on.

        `RunError` names what cannot be read: no plain file, or one of which the rest is too long to be shown.
        """
        try:
            with open_to_read(self.path) as file:
                return self._from(file)
        except FileNotFoundError:
            self._begin_anew()
            return []

    def _from(self, file: BinaryIO) -> list[Line]:
        found = os.fstat(file.fileno())
        file.seek(max(0, self._read - SCRAP))
        if file.read(min(SCRAP, self._read)) != self._last or (self.fault and found.st_mtime != self._changed):
            self._begin_anew()
        self._changed = found.st_mtime
        if self.fault:
            return []
        if self._read >= SHOWN:
            raise RunError(f"{self.path} has more than {SHOWN >> 20} MiB. The rest is not shown.")
        file.seek(self._read)
        piece = file.read(PIECE)
        whole, ending, _ = piece.rpartition(b"\n")
        if len(piece) == PIECE and not ending:
            self.fault = f"it has more than {PIECE >> 20} MiB"
        return self._parsed(whole.split(b"\n") if ending else [])

    def _parsed(self, texts: list[bytes]) -> list[Line]:
        lines, begun = list[Line](), thread_time()
        for text in texts:
            self._read, self._last = self._read + len(text) + 1, (self._last + text + b"\n")[-SCRAP:]
            if text.strip():
                try:
                    line = parsed(text.decode("utf-8"))
                    self.fault = line_fault(line, self.done + 1)
                except ValueError as error:
                    self.fault = f"it is not JSON ({error})"
                if self.fault:
                    break
                lines.append(line)
                self.done += 1
            if thread_time() - begun > HASTE:
                break
        return lines

    def _begin_anew(self) -> None:
        self.anew += bool(self.done or self.fault)
        self.done, self.fault, self._read, self._last = 0, "", 0, b""
