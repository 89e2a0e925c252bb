"""A disk that is full, fails or cannot be written; few descriptors, little memory, little shared memory.

Expected: the command succeeds, or says in our words what is wrong; what was saved is unharmed. With the cause mended,
the same command ends with the result of an undisturbed run.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaign import judge, reference
from tests.campaign.case import Case, Ground, Plan, Unavailable
from tests.campaign.changes import failing, on_changes
from tests.campaign.isolation import mount_read_only, mount_small, unmount
from tests.campaign.scenarios import SCENARIOS, begun, change_at
from tests.campaign.victim import esgd

PLAN = Plan(full=395, quick=24, suite=2, limit=180.0)

PLENTY = 1 << 20
"""More kilobytes, or files, than any run here needs."""
ERRORS = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES")
LIMITS = {"descriptors": resource.RLIMIT_NOFILE, "bytes a file": resource.RLIMIT_FSIZE, "memory": resource.RLIMIT_AS}


def _short(
    ground: Ground,
    name: str,
    *,
    prepare: Callable[[], object] = lambda: None,
    mend: Callable[[], object] = lambda: None,
) -> str | None:
    """Give a command while something is short, then again when it is mended."""
    scenario = SCENARIOS[name]
    ended = esgd(*scenario.words, cwd=ground.folder, prepare=prepare)
    if ended.code not in (0, 2, 3) or judge.unclean(ended):
        return str(ended)
    mend()
    return judge.ends_the_same(ground, scenario.like(ground.root), scenario.words)


@dataclass(frozen=True)
class Full:
    """A disk with room for so many kilobytes and files more."""

    scenario: str
    kilobytes: int = PLENTY
    files: int = PLENTY

    def attack(self, ground: Ground) -> str | None:
        _need_mounts(ground)
        begun(self.scenario, ground)
        _put_on(ground.run)
        found = os.statvfs(ground.run)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize // 1024
        mount_small(
            ground.run, kilobytes=used + self.kilobytes, files=found.f_files - found.f_ffree + self.files, again=True
        )
        return _short(ground, self.scenario, mend=partial(_enlarge, ground.run))


def _put_on(run: Path) -> None:
    """Move a run to a disk of its own."""
    aside = run.with_name("aside")
    if run.exists():
        run.rename(aside)
    run.mkdir()
    mount_small(run, kilobytes=PLENTY, files=PLENTY)
    if aside.exists():
        shutil.copytree(aside, run, dirs_exist_ok=True)


def _enlarge(run: Path) -> None:
    mount_small(run, kilobytes=PLENTY, files=PLENTY, again=True)


@dataclass(frozen=True)
class Failing:
    """A disk that fails with an error at a place among the changes, from 0 to 1; once, or from there on."""

    scenario: str
    error: str
    place: float
    once: bool

    def attack(self, ground: Ground) -> str | None:
        begun(self.scenario, ground)
        fail = failing(
            change_at(self.place, self.scenario, ground.root), getattr(errno, self.error), ever_after=not self.once
        )
        return _short(ground, self.scenario, prepare=lambda: on_changes(ground.run, fail))


@dataclass(frozen=True)
class Limited:
    """A process that may have only so much: descriptors, bytes in a file, or megabytes more than it begins with."""

    scenario: str
    what: str
    amount: int

    def attack(self, ground: Ground) -> str | None:
        begun(self.scenario, ground)
        return _short(ground, self.scenario, prepare=self._limit)

    def _limit(self) -> None:
        amount = self.amount if self.what != "memory" else _memory() + (self.amount << 20)
        resource.setrlimit(LIMITS[self.what], (amount, amount))


def _memory() -> int:
    """The addresses that this process uses, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@dataclass(frozen=True)
class SharedMemory:
    """A machine whose /dev/shm has only so many kilobytes: workers and clusters share rows."""

    scenario: str
    kilobytes: int

    def attack(self, ground: Ground) -> str | None:
        _need_mounts(ground)
        begun(self.scenario, ground)
        mount_small(judge.SHARED_MEMORY, kilobytes=self.kilobytes)
        return _short(ground, self.scenario)


@dataclass(frozen=True)
class ReadOnly:
    """A run folder that cannot be changed: what only reads succeeds, what would write is refused."""

    scenario: str
    words: tuple[str, ...]
    reads: bool

    def attack(self, ground: Ground) -> str | None:
        _need_mounts(ground)
        begun(self.scenario, ground)
        ground.run.mkdir(exist_ok=True)
        mount_read_only(ground.run)
        ended = esgd(*self.words, cwd=ground.folder)
        wrong = (str(ended) if ended.code != 0 else None) if self.reads else judge.refuses(ended, "run")
        unmount(ground.run)
        return wrong or _short(ground, self.scenario)


def _need_mounts(ground: Ground) -> None:
    if not ground.mounts:
        raise Unavailable(ground.why)


def cases(seed: int) -> Iterator[Case]:
    """Everything that can be short, at every size step, mixed."""
    drawn = random.Random(seed)
    found = [*_full(), *_failing(drawn), *_limited(), *_read_only()]
    drawn.shuffle(found)
    yield from found


def _full() -> Iterator[Case]:
    for kilobytes in (*range(4, 120, 4), *range(120, 1_200, 60)):
        yield Full("run", kilobytes=kilobytes)
    for scenario in ("resume", "mend"):
        for kilobytes in (0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 400, 900):
            yield Full(scenario, kilobytes=kilobytes)
    for files in range(20):
        yield Full("run", files=files)
    for kilobytes in range(40, 440, 40):
        yield Full("compare", kilobytes=kilobytes)


def _failing(drawn: random.Random) -> Iterator[Case]:
    """Every place of a run and a resume; which error it is, and whether it stays, is drawn."""
    for scenario, places in {"run": 130, "resume": 50, "mend": 30, "compare": 20}.items():
        for number in range(places):
            yield Failing(scenario, drawn.choice(ERRORS), number / places, drawn.random() < 0.5)


def _limited() -> Iterator[Case]:
    for amount in (3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 64):
        yield Limited("run", "descriptors", amount)
    for amount in (8, 16, 24, 32):
        yield Limited("pool", "descriptors", amount)
    for amount in range(1_024, 12_000, 1_024):
        yield Limited("run", "bytes a file", amount)
    for amount in (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512):
        yield Limited("run", "memory", amount)
    for kilobytes in (4, 64, 1_024):
        yield SharedMemory("pool", kilobytes)
    yield SharedMemory("ray", 64 << 10)


def _read_only() -> Iterator[Case]:
    for scenario in ("resume", "mend"):
        yield ReadOnly(scenario, reference.RESUME, reads=False)
        yield ReadOnly(scenario, ("report", "run"), reads=False)
        yield ReadOnly(scenario, ("export", "run", "--out", "export"), reads=True)
    yield ReadOnly("resume", ("verify", "run"), reads=True)
    yield ReadOnly("run", reference.RUN, reads=False)
