"""Files that are either old or new, never half: written aside, synced, renamed. And files of strangers, read with care.

A run folder may come from somebody else. What is written or read never follows a symbolic link that lies in it, and
what is read is a regular file of bounded size: not a device, not a FIFO that waits for a writer for ever.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from esgd._limits import shortage
from esgd.errors import EsgdError, RunError
from esgd.run.parsing import parsed

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READ |= getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not wait
_READABLE = 0o666  # less what the umask takes away

AGAIN = "When the cause is mended, run the same command again: it continues from there."

WORDS_LIMIT = 64 << 20
"""Bytes of JSON or TOML in one file that are read at most; a manifest has some thousand."""


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place; on any error the old one stays.

    A link at either place is replaced, never followed. The file gets the mode that the umask gives to any new file.
    """
    aside = path.with_name(f".{path.name}.new")
    try:
        remove(aside)
        make_file(aside, write)
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        remove(aside)


def make_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a new file, which gets the mode that the umask gives to any new file."""
    descriptor = os.open(path, _NEW, _READABLE)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    write(path)
    path.chmod(mode)  # safetensors writes files that only their owner may read


def open_to_append(path: Path) -> BinaryIO:
    """The file to append to, made if need be; a link or anything else that is no regular file is refused."""
    return _opened(path, _APPEND, "ab")


def replace_words(path: Path, words: str) -> None:
    """Put a text in the place of what a file holds."""
    replace_file(path, lambda aside: aside.write_text(words, encoding="utf-8"))


def open_to_read(path: Path) -> BinaryIO:
    """The file to read; `FileNotFoundError` where there is none, `RunError` for what is no regular file or cannot be
    opened. A link is refused: it may lead to a file that is private. Where the path is the caller's own
    word, resolve it first.
    """
    try:
        return _opened(path, _READ, "rb")
    except (RunError, FileNotFoundError):
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}. Check the path and its permissions.") from error


def read_words(path: Path, *, limit: int = WORDS_LIMIT) -> str:
    """The text of a file; `RunError` names one that is no regular file, too large, or not UTF-8."""
    with open_to_read(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise RunError(f"{path} has more than {limit >> 20} MiB, which no file of words has. Is it another file?")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: {error}.") from error


def read_table(path: Path, *, limit: int = WORDS_LIMIT) -> dict[str, Any]:
    """The JSON object in a file; `FileNotFoundError` where there is none, `RunError` for whatever else it is."""
    try:
        read = parsed(read_words(path, limit=limit))
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}.") from error
    if not isinstance(read, dict):
        raise RunError(f"{path} is damaged: it holds a {type(read).__name__}, not an object.")
    return read


def remove(path: Path) -> None:
    """Remove what is at `path`, whatever it is; a link is removed, and what it leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
    with open_to_read(path) as file:
        while piece := file.read(1 << 20):
            hashed.update(piece)
    return hashed.hexdigest()


@contextmanager
def blaming(path: Path | str, doing: str) -> Iterator[None]:
    """Name the file with whose values something cannot be done, because they are not what a run writes."""
    try:
        yield
    except EsgdError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(
            f"{path} cannot be {doing}: {type(error).__name__} {error}. Its values are not what a run writes. Restore "
            f"the file from a copy."
        ) from error


@contextmanager
def explained(folder: Path, doing: str, kept: str) -> Iterator[None]:
    """Turn what the operating system says into what happened, what is safe, and what to do next."""
    try:
        yield
    except (OSError, SafetensorError, MemoryError, RuntimeError) as error:
        short = shortage(error)
        if isinstance(error, EsgdError) or (isinstance(error, MemoryError | RuntimeError) and not short):
            raise
        reason = f"{doing} in {str(folder)!r} failed: {short or f'{error}.'} {kept}"
        raise RunError(f"{reason} {AGAIN if short else _advice(error)}") from error


def _opened(path: Path, flags: int, mode: str) -> BinaryIO:
    try:
        descriptor = os.open(path, flags, _READABLE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise _irregular(path) from error
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, mode)  # type: ignore[return-value]  # a binary mode
    os.close(descriptor)
    raise _irregular(path)


def _irregular(path: Path) -> RunError:
    return RunError(
        f"{path} is a link, a folder or a device, and a run has a plain file there. It is neither read nor written: a "
        f"run folder may come from somebody else. Put a copy of the file in its place, or remove it."
    )


def _advice(error: Exception) -> str:
    told = re.search(r"os error (\d+)", str(error))  # safetensors passes the system's number on in words
    code = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Free some disk space, then run the same command again: it continues from there."
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Choose a folder that you may write to, or change its permissions."
    return AGAIN
