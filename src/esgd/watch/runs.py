"""Which runs there are below some folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from esgd.errors import RunError
from esgd.report.numerals import spelt
from esgd.run.history import HISTORY
from esgd.run.manifest import MANIFEST
from esgd.watch.followed import Followed

EVERY = 2.0  # seconds between two searches for new folders


class Runs:
    """The runs below some folders, under ids that say nothing of where they lie."""

    def __init__(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                kind = "a file" if folder.exists() else "not there"
                raise RunError(
                    f"{str(folder)!r} is {kind}. `esgd watch` follows the runs in a folder, or a folder that is a run. "
                    f"Give one that exists; it may be empty, and runs may begin in it later."
                )
        self._folders, self._lock = list(folders), Lock()
        self._followed: dict[str, Followed] = {}
        self._searched = -EVERY

    def __getitem__(self, id_: str) -> Followed:
        return self._followed[id_]

    def listed(self) -> dict[str, Any]:
        """All runs with what is known of them, and which of them a reader would want to see first."""
        with self._lock:
            self._search()
            followed = dict(self._followed)
        for each in followed.values():
            each.look()
        return {"runs": [{"id": id_, **each.facts()} for id_, each in followed.items()], "chosen": _latest(followed)}

    def _search(self) -> None:
        if monotonic() - self._searched < EVERY:
            return
        self._searched = monotonic()
        found = dict(_found(self._folders))
        self._followed = {id_: self._followed.get(id_) or Followed(*place, whole=False) for id_, place in found.items()}


def _found(folders: Sequence[Path]) -> Iterator[tuple[str, tuple[Path, str]]]:
    for folder in folders:
        for run in _below(folder):
            inside = run.relative_to(folder).as_posix()
            name = folder.resolve().name if inside == "." else inside
            named = name if len(folders) == 1 or inside == "." else f"{folder.resolve().name}/{name}"
            yield sha256(os.fsencode(run.resolve())).hexdigest()[:12], (run, spelt(named))


def _below(folder: Path) -> Iterator[Path]:
    """The folder itself if it is a run, or those below it; what a run keeps inside is not looked at."""
    for place, names, files in os.walk(folder):
        if HISTORY in files or (MANIFEST in files and "recipe.toml" in files):
            names.clear()
            yield Path(place)
        names[:] = sorted(name for name in names if not name.startswith("."))


def _latest(followed: dict[str, Followed]) -> list[str]:
    """The run that was heard of last, then those beside it: the arms of a comparison stand in one folder."""
    if not followed:
        return []
    newest = max(followed, key=lambda id_: followed[id_].changed)
    beside = followed[newest].folder.parent
    return [newest, *(id_ for id_, each in followed.items() if each.folder.parent == beside and id_ != newest)]
