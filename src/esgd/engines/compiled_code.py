"""Where compiled code is kept: in the user's cache folder, so that the next run starts at once, and that workers do not
compile the same code at the same time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PATIENCE = 600.0
"""Seconds to wait for another process that compiles the same code. After that it is compiled twice."""


def keep_compiled_code() -> None:
    """Name the folder to torch, before it compiles for the first time. One that the user has chosen stays.

    torch's own choice is a folder with a known name in the folder for temporary files: gone after a restart or in the
    next container, and on a shared machine open to the first user who makes it. Our folder belongs to the user alone.
    torch decides by the code and its own version what can be used again.
    """
    if VARIABLE in os.environ:
        return
    with suppress(OSError):  # no home, or one that cannot be written: torch's own choice
        folder = compiled_code_folder()
        for each in (folder.parent.parent, folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if all(map(_is_ours_alone, (folder.parent.parent, folder.parent, folder))):
            os.environ[VARIABLE] = str(folder)


@contextmanager
def compiling(code: str) -> Iterator[None]:
    """Compile this code while no other process does: workers of one run need the same, and the second one then finds
    what the first has kept."""
    with ExitStack() as exits:
        if folder := os.environ.get(VARIABLE):
            with suppress(OSError, Timeout):  # a folder that cannot be written, or a process that hangs
                exits.enter_context(FileLock(_lock(folder, code), timeout=PATIENCE))
        yield


def _lock(folder: str, code: str) -> Path:
    """One of 256 files: they are never removed."""
    return Path(folder) / f"esgd-{sha256(code.encode()).hexdigest()[:2]}.lock"


def _is_ours_alone(folder: Path) -> bool:
    """Whether it is a folder of this user that no other can write into: torch runs what it finds there."""
    found = folder.lstat()
    owned = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and owned and not found.st_mode & 0o022


def compiled_code_folder() -> Path:
    """One for each version of torch, so that what an old one left can be deleted as a whole."""
    return user_cache_path("esgd", appauthor=False) / "compiled" / f"torch-{torch.__version__}"
