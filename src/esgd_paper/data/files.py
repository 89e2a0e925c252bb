"""What the operating system says about a file, turned into what is wrong with the data and what to do."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path

from esgd.errors import DataError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file that cannot be read."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not the system's: ours, or a decompressor's
            raise
        raise DataError(
            f"{path} cannot be read: {error.strerror}. Check that it is a file that you may read."
        ) from error


@contextmanager
def writing(path: Path, *, needed: int | None = None) -> Iterator[None]:
    """Name the file or folder that cannot be written; where the disk is full, say how much is `needed`."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        if error.errno in FULL:
            raise full_disk(path, needed) from error
        raise DataError(
            f"{path} cannot be written: {error.strerror}. Choose a folder that you may write to, with --data or "
            f"$ESGD_DATA."
        ) from error


def full_disk(path: Path, needed: int | None) -> DataError:
    """The error for a disk without room for `needed` more bytes."""
    more = "an unknown number of bytes" if needed is None else f"{needed:,} bytes ({size(needed)})"
    return DataError(
        f"The disk is full: {path} needs {more} more, and {size(free_space(path.parent))} are free. Make room, then "
        f"run the same command again: it continues from there. Or choose another disk with --data or $ESGD_DATA."
    )


def free_space(folder: Path) -> int:
    """The bytes that are free where `folder` is, or would be."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free


def size(count: int) -> str:
    """A number of bytes for people.

    >>> size(170_052_171)
    '162.2 MiB'
    """
    return f"{count / 2**20:,.1f} MiB" if count >= 2**20 else f"{count / 2**10:,.1f} KiB"


def text(path: Path) -> str:
    """The content of a text file; what is no text is named, with the line where it stops being one."""
    with reading(path):
        raw = path.read_bytes()
    fault = raw.find(b"\0")
    reason = "a zero byte"
    if fault < 0:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            fault, reason = error.start, f"the byte 0x{raw[error.start]:02x}"
    line = raw.count(b"\n", 0, fault) + 1
    raise DataError(
        f"{path}:{line} holds {reason}, and text (UTF-8) was expected. The file begins with {raw[:12]!r}: it is "
        f"damaged, compressed, or another file."
    )


def beginning(path: Path) -> bytes:
    """The first bytes of a file, by which people recognise what it really is."""
    with reading(path), path.open("rb") as file:
        return file.read(12)


def digest(path: Path) -> str:
    """The SHA-256 of a file; it may be a link, for the folder is the user's own choice."""
    with reading(path), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def alteration(path: Path, sha256: str) -> str:
    """How a file differs from the publisher's; nothing where it does not."""
    got = digest(path)
    return "" if got == sha256 else f"the SHA-256 of {path.name} is {got}, and {sha256} was expected"
