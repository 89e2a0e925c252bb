"""What a process does to the files of a folder, seen from inside it, before it happens (Python's audit events).

`on_changes` calls a function before every change, with its number. The function may end the process (a kill aimed at a
file), raise an OSError (a disk that fails just there), or count.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ALTERING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SYNC = "os.fsync"  # Python announces all others itself
EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.chmod", SYNC)


@dataclass(frozen=True)
class Change:
    """The n-th change in the folder that this process makes: an event and what it concerns."""

    number: int
    event: str
    path: str

    def __str__(self) -> str:
        return f"{self.number} {self.event} {self.path}"


def on_changes(folder: Path, act: Callable[[Change], None]) -> None:
    """From now on, call `act` before this process changes something below `folder`. It cannot be undone."""
    top, number, busy = str(folder.resolve()), 0, False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal number, busy
        if busy or not (event in EVENTS or (event == "open" and _alters(arguments[2]))):
            return
        busy = True
        try:
            path = _path(event, arguments)
            if path == top or path.startswith(f"{top}{os.sep}"):
                change = Change(number, event, os.path.relpath(path, top))
                number += 1
                act(change)
        finally:
            busy = False

    sync = os.fsync

    def announced(descriptor: int) -> None:
        sys.audit(SYNC, descriptor)
        sync(descriptor)

    os.fsync = announced
    sys.addaudithook(hook)


def _alters(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & ALTERING)


def _path(event: str, arguments: tuple[object, ...]) -> str:
    """The absolute path that an event is about; shutil.rmtree names files relative to open folders."""
    first = arguments[0]
    if isinstance(first, int):
        return str(Path(f"/proc/self/fd/{first}").readlink())
    place = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2, "os.rename": 2}.get(event)
    beside = arguments[place] if place is not None else -1
    base = Path(f"/proc/self/fd/{beside}").readlink() if isinstance(beside, int) and beside >= 0 else Path.cwd()
    return os.path.normpath(base / os.fsdecode(first))  # type: ignore[arg-type]


def note(path: Path) -> Callable[[Change], None]:
    """Write every change down, a line each."""

    def act(change: Change) -> None:
        with path.open("a") as file:
            file.write(f"{change}\n")

    return act


def die() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying(number: int) -> Callable[[Change], None]:
    """Die before the change with this number."""

    def act(change: Change) -> None:
        if change.number == number:
            die()

    return act


def failing(number: int, code: int, *, ever_after: bool) -> Callable[[Change], None]:
    """Let the change with this number fail with an errno; `ever_after`, every later one, too, as on a full disk."""

    def act(change: Change) -> None:
        removal = change.event in ("os.remove", "os.rmdir")  # what is full can be emptied
        if change.number == number or (ever_after and change.number > number and not removal):
            raise OSError(code, os.strerror(code), change.path)

    return act


class PowerCut:
    """Die before the change with this number, and lose what was not forced to the disk until then.

    Of every file that was written since its last fsync, a random part remains; what was appended, or all, may be gone.
    """

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self._folder, self._number, self._random = folder, number, random.Random(seed)
        self._kept = {file.stat().st_ino: _version(file) for file in folder.rglob("*") if file.is_file()}

    def __call__(self, change: Change) -> None:
        if change.event == SYNC and change.number != self._number:
            path = self._folder / change.path
            if path.is_file():
                self._kept[path.stat().st_ino] = _version(path)
        if change.number == self._number:
            self._lose()
            die()

    def _lose(self) -> None:
        for file in sorted(self._folder.rglob("*")):
            if file.is_file():
                version = _version(file)
                kept = self._kept.get(file.stat().st_ino, (0, 0))
                if version != kept:
                    least = kept[1] if kept[1] < version[1] else 0
                    os.truncate(file, self._random.randint(least, version[1]))


def _version(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size
