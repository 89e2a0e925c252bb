"""Files that are either old or new, never half: written aside, synced, renamed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError

from esgd.errors import RunError


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place; on any error the old one stays."""
    aside = path.with_name(f".{path.name}.new")
    try:
        write(aside)
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    hashed = sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            hashed.update(piece)
    return hashed.hexdigest()


@contextmanager
def explained(folder: Path, doing: str, kept: str) -> Iterator[None]:
    """Turn what the operating system says into what happened, what is safe, and what to do next."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{doing} in {str(folder)!r} failed: {error}. {kept} {_advice(error)}") from error


def _advice(error: Exception) -> str:
    told = re.search(r"os error (\d+)", str(error))  # safetensors passes the system's number on in words
    code = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Free some disk space, then run the same command again: it goes on from there."
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Choose a folder that you may write to, or change its permissions."
    return "When the cause is mended, run the same command again: it goes on from there."
