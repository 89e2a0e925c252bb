"""A case: one attempt to break something. And the ground that it has for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


class Unavailable(Exception):  # noqa: N818  # it is no error
    """A case cannot be tried on this machine; the text says what is missing."""


@dataclass(frozen=True)
class Ground:
    """Where cases happen: `root` is the campaign's folder, with what its cases share, and `folder` the case's own.

    `mounts` says whether the case has mounts of its own, /dev/shm among them; if not, `why` not.
    """

    root: Path
    folder: Path
    mounts: bool = False
    why: str = ""

    @property
    def run(self) -> Path:
        """The folder of the run that is attacked."""
        return self.folder / "run"


@runtime_checkable
class Case(Protocol):
    """A frozen value whose repr says what it does. It may raise: then that is what went wrong."""

    def attack(self, ground: Ground) -> str | None:
        """Try it; returns what went wrong, or None."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many of its cases a whole campaign has, a quick one, and the test suite.

    A case counts as a hang after `limit` seconds. It tries `each` inputs, most often one.
    """

    full: int
    quick: int
    suite: int
    limit: float
    each: int = 1

    def size(self, campaign: str) -> int:
        """How many cases the campaign "full", "quick" or "suite" has."""
        return {"full": self.full, "quick": self.quick, "suite": self.suite}[campaign]


class Attack(Protocol):
    """A module of this folder."""

    PLAN: Plan

    def cases(self, seed: int) -> Iterable[Case]:
        """All cases, in an order that the seed decides: a smaller campaign takes the first of them."""
        ...


def python_path() -> str:
    """What a new process needs to find the same modules as this one."""
    return ":".join(str(Path(entry).resolve()) for entry in sys.path)
