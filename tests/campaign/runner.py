"""Runs cases, two at a time, each in a process of its own; one that takes too long is ended, and has failed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic

from tests.campaign.case import Case, Ground, Unavailable
from tests.campaign.isolation import adopt_orphans, end_below, mount_small, own_mounts
from tests.campaign.judge import SHARED_MEMORY

WORKERS = 2
SHARED = 4 << 20
"""Kilobytes of a case's own /dev/shm; memory is taken only as it is used."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case: what went wrong, or why it could not be tried; neither if all is well."""

    case: str
    failed: str | None = None
    missing: str | None = None
    seconds: float = 0.0


@dataclass
class Running:
    """A case at work."""

    name: str
    limit: float
    folder: Path
    temporary: Path
    process: BaseProcess
    begun: float = field(default_factory=monotonic)

    @property
    def left(self) -> float:
        return self.begun + self.limit - monotonic()

    def end(self) -> Outcome:
        """What it wrote down before it ended; it is ended now, if it has not ended yet."""
        late, seconds = self.left <= 0, monotonic() - self.begun
        if self.process.is_alive() and self.process.pid is not None:
            end_below(self.process.pid)
        self.process.join()
        try:
            outcome = Outcome(self.name, **json.loads(_result(self.folder).read_text()), seconds=seconds)
        except (FileNotFoundError, ValueError):
            how = f"it hangs: not done after {self.limit:.0f} s" if late else f"it ended with {self.process.exitcode}"
            outcome = Outcome(self.name, failed=how, seconds=seconds)
        shutil.rmtree(self.temporary, ignore_errors=True)
        if outcome.failed is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        return outcome


def run(cases: Iterable[tuple[str, Case, float]], root: Path) -> Iterator[Outcome]:
    """Try cases, given with their names and limits; outcomes come as they end. What failed stays in `root`."""
    waiting, running = iter(cases), list[Running]()
    try:
        while True:
            while len(running) < WORKERS and (following := next(waiting, None)) is not None:
                running.append(_begin(*following, root))
            if not running:
                return
            wait([each.process.sentinel for each in running], timeout=max(0, min(each.left for each in running)))
            for each in [each for each in running if each.left <= 0 or not each.process.is_alive()]:
                running.remove(each)
                yield each.end()
    finally:
        for each in running:
            each.end()


def _begin(name: str, case: Case, limit: float, root: Path) -> Running:
    folder = root / "cases" / name.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    temporary = Path(tempfile.mkdtemp(prefix="esgd-"))  # a short name, for the paths of sockets must be short
    process = get_context("fork").Process(target=_try, args=(case, root, folder, temporary))
    process.start()
    return Running(name, limit, folder, temporary, process)


def _try(case: Case, root: Path, folder: Path, temporary: Path) -> None:
    """What the process of a case does."""
    os.setsid()
    adopt_orphans()
    tempfile.tempdir = None
    os.environ["TMPDIR"] = str(temporary)
    ground = Ground(root, folder, *_mounts())
    result: dict[str, str | None] = {"failed": None, "missing": None}
    try:
        result["failed"] = case.attack(ground)
    except Unavailable as error:
        result["missing"] = str(error)
    except Exception:  # noqa: BLE001  # whatever it was, the case has failed, and others go on
        result["failed"] = traceback.format_exc()
    _result(folder).write_text(json.dumps(result))


def _mounts() -> tuple[bool, str]:
    try:
        own_mounts()
        mount_small(SHARED_MEMORY, kilobytes=SHARED)
    except Unavailable as error:
        return False, str(error)
    return True, ""


def _result(folder: Path) -> Path:
    return folder / "result.json"
