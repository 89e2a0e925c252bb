"""Processes, seen from outside: who descends from whom, and what they write to disk. Linux only; standard library only,
because the peers' environment uses this file as well."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread


def family(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has just ended
    members, before = {root}, set[int]()
    while members != before:
        before = set(members)
        members |= {child for child, parent in parents.items() if parent in members}
    return members


class Watch:
    """Calls `look` with this process and its descendants every so often while it is entered, and once at the end."""

    def __init__(self, look: Callable[[set[int]], None], *, pause: float = 0.5) -> None:
        self._look, self._pause, self._end = look, pause, Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(self._pause):
            self._look(family(os.getpid()))

    def __exit__(self, *error: object) -> None:
        self._look(family(os.getpid()))
        self._end.set()
        self._thread.join()


class Written:
    """Bytes that processes have sent to disks, each process as it was when last seen."""

    def __init__(self) -> None:
        self._of = dict[int, int]()

    def look(self, processes: set[int]) -> None:
        for number in processes:
            try:
                fields = dict(line.split(": ") for line in Path(f"/proc/{number}/io").read_text().splitlines())
            except OSError:
                continue
            self._of[number] = int(fields["write_bytes"])

    @property
    def total(self) -> int:
        return sum(self._of.values())
