"""Files that are either old or new, never half: written aside, synced, renamed. And files of strangers, read with care.

A run folder may come from somebody else. What is written never follows a symbolic link that lies in it, and what is
read is a regular file of bounded size: not a device, not a FIFO that waits for a writer for ever.
"""

from __future__ import annotations

import errno
import json
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

from esgd.errors import RunError

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # opening a FIFO must not wait
_READABLE = 0o666  # less what the umask takes away

WORDS_LIMIT = 64 << 20
"""Bytes of JSON or TOML in one file that are read at most; a manifest has some thousand."""


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place; on any error the old one stays.

    A link at either place is replaced, never followed. The file gets the mode that the umask gives to any new file.
    """
    aside = path.with_name(f".{path.name}.new")
    try:
        remove(aside)
        descriptor = os.open(aside, _NEW, _READABLE)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        write(aside)
        aside.chmod(mode)  # safetensors writes files that only their owner may read
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        remove(aside)


def open_to_append(path: Path) -> BinaryIO:
    """The file to append to, made if need be; a link or anything else that is no regular file is refused."""
    return _opened(path, _APPEND, "ab")


def open_to_read(path: Path) -> BinaryIO:
    """The file to read; `FileNotFoundError` where there is none, `RunError` for what is no regular file."""
    return _opened(path, _READ, "rb")


def read_words(path: Path) -> str:
    """The text of a file; `RunError` names one that is no regular file, too large, or not UTF-8."""
    with open_to_read(path) as file:
        raw = file.read(WORDS_LIMIT + 1)
    if len(raw) > WORDS_LIMIT:
        raise RunError(f"{path} has more than {WORDS_LIMIT >> 20} MiB, which no file of words has. Is it another file?")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: {error}.") from error


def read_table(path: Path) -> dict[str, Any]:
    """The JSON object in a file; `FileNotFoundError` where there is none, `RunError` for whatever else it is."""
    try:
        read = json.loads(read_words(path))
    except RecursionError as error:
        raise RunError(f"{path} is damaged: it is nested too deeply.") from error
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
def explained(folder: Path, doing: str, kept: str) -> Iterator[None]:
    """Turn what the operating system says into what happened, what is safe, and what to do next."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{doing} in {str(folder)!r} failed: {error}. {kept} {_advice(error)}") from error


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
        f"{path} is a link, a folder or a device, and a run has a plain file there. A run writes only inside its own "
        f"folder. Restore the file from a copy, or remove what stands in its place."
    )


def _advice(error: Exception) -> str:
    told = re.search(r"os error (\d+)", str(error))  # safetensors passes the system's number on in words
    code = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
    if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Free some disk space, then run the same command again: it goes on from there."
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Choose a folder that you may write to, or change its permissions."
    return "When the cause is mended, run the same command again: it goes on from there."
