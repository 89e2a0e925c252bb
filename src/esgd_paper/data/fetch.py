"""Downloads that survive bad networks: resumed where they broke off, checked, and put in place only when whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from esgd.errors import DataError
from esgd.run.files import open_to_append, sync
from esgd_paper.data.files import alteration, digest, free_space, full_disk, size, writing

PIECE = 1 << 18
TRIES = 3
SECONDS = 30.0
GONE = (404, 410)


@dataclass(frozen=True)
class Remote:
    """A file of a publisher. Without a SHA-256 a broken download begins again: halves could be of different files."""

    url: str
    name: str
    sha256: str | None = None
    bytes: int | None = None


class _BrokenError(Exception):
    """The connection failed; what has arrived is kept."""


def fetch(remote: Remote, into: Path, *, progress: bool = True) -> Path:
    """Download a file into a folder and return its path; one that is there already is checked and left alone.

    What has arrived waits in `NAME.part`. It gets its name when it is whole and its SHA-256 is right. Progress goes to
    standard error where that is a terminal.
    """
    target, part = into / remote.name, into / f"{remote.name}.part"
    with writing(into):
        into.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        if target.exists():
            if not target.is_file():
                raise DataError(f"{target} is no file, and {remote.url} is one. Remove or rename it.")
            fault = alteration(target, remote.sha256) if remote.sha256 else ""
            if fault:
                raise DataError(f"{target} is another file than {remote.url}: {fault}. Remove or rename it.")
            return target
        _receive(remote, part, progress=progress)
        _check(remote, part)
        with writing(target):
            sync(part)
            part.replace(target)
            sync(into)
    return target


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """One process at a time fetches a file; the others wait, and then find it there."""
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    with writing(target):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting = f"Another process is fetching {target}; waiting for it."
            Console(stderr=True).print(waiting, highlight=False, markup=False, soft_wrap=True)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _receive(remote: Remote, part: Path, *, progress: bool) -> None:
    """Fill `part`. A connection that breaks after it has brought something is tried again, a few times."""
    for attempt in range(1, TRIES + 1):
        if remote.sha256 is None:
            part.unlink(missing_ok=True)
        have = _length(part)
        if have == remote.bytes:
            return
        try:
            with _ask(remote, part, have) as answer:
                _store(remote, answer, part, progress=progress)
            return
        except _BrokenError as broken:
            if attempt == TRIES or _length(part) == have:
                raise DataError(_broken(remote, part, broken)) from broken


def _ask(remote: Remote, part: Path, have: int) -> HTTPResponse:
    headers = {"User-Agent": "esgd", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer: HTTPResponse = urlopen(Request(remote.url, headers=headers), timeout=SECONDS)
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:  # longer than the publisher's file: nothing to go on from
            part.unlink()
            return _ask(remote, part, 0)
        raise DataError(_refusal(remote, error)) from error
    except (OSError, HTTPException) as error:
        raise _BrokenError(_reason(error)) from error
    return answer


def _store(remote: Remote, answer: HTTPResponse, part: Path, *, progress: bool) -> None:
    """Write what the server sends: behind what is there if it continues from there, else from the beginning."""
    have = _length(part) if answer.status == 206 else 0
    coming = answer.headers.get("Content-Length")
    total = have + int(coming) if coming and coming.isdecimal() else remote.bytes
    if answer.headers.get_content_type() == "text/html":
        raise DataError(_web_page(remote))
    if remote.bytes is not None and total != remote.bytes:
        raise DataError(
            f"{remote.url} offers {total:,} bytes, and {remote.bytes:,} were expected: the publisher has changed the "
            f"file, or something on the way answers in its place. Get the file by other means."
        )
    if total is not None and free_space(part.parent) < total - have:
        raise full_disk(part, total - have)
    with _bar(remote, have, total, shown=progress) as advance, _opened(part, have, total) as write:
        for piece in _pieces(answer):
            if not have and piece.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html")):
                raise DataError(_web_page(remote))
            write(piece)
            have += len(piece)
            advance(len(piece))
    if total is not None and have < total:
        raise _BrokenError(f"it was closed after {have:,} of {total:,} bytes")


@contextmanager
def _opened(part: Path, have: int, total: int | None) -> Iterator[Callable[[bytes], object]]:
    """The file to write to, behind the bytes that it has. Only what the disk says is caught here: the network speaks
    in OSErrors too."""

    def needed() -> int | None:
        return None if total is None else total - _length(part)

    with writing(part, needed=needed()):
        if not have:
            part.unlink(missing_ok=True)
        file = open_to_append(part)

    def write(piece: bytes) -> None:
        with writing(part, needed=needed()):
            file.write(piece)

    try:
        yield write
    finally:
        with writing(part, needed=needed()):
            file.close()


def _pieces(answer: HTTPResponse) -> Iterator[bytes]:
    try:
        while piece := answer.read(PIECE):
            yield piece
    except (OSError, HTTPException) as error:
        raise _BrokenError(_reason(error)) from error


@contextmanager
def _bar(remote: Remote, have: int, total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(remote.name, total=total, completed=have)
        yield lambda count: bar.advance(task, count)


def _check(remote: Remote, part: Path) -> None:
    if remote.sha256 is None:
        return
    got, length = digest(part), _length(part)
    if got != remote.sha256:
        part.unlink()
        raise DataError(
            f"{remote.url} gave {length:,} bytes with SHA-256 {got}, and {remote.sha256} was expected. They were "
            f"damaged or altered on the way, or the publisher has changed the file. What came was removed; run the "
            f"same command again, and if that gives the same, get the file by other means."
        )


def _broken(remote: Remote, part: Path, broken: _BrokenError) -> str:
    have = _length(part)
    if not have:
        return (
            f"{remote.url} cannot be reached: {broken}. Check the network and, behind a proxy, the variable "
            f"https_proxy; or get {remote.name} on another machine and copy it to {part.parent}."
        )
    said = f"The connection to {urlsplit(remote.url).netloc} broke: {broken}."
    if remote.sha256 is None:
        return f"{said} Run the same command again: {remote.name} begins anew."
    whole = f" of {size(remote.bytes)}" if remote.bytes else ""
    return f"{said} {size(have)}{whole} are kept in {part}. Run the same command again: it continues from there."


def _refusal(remote: Remote, error: HTTPError) -> str:
    said = f"{remote.url} answers {error.code} {error.reason}"
    if error.code in GONE:
        return f"{said}: the file has moved or been removed. Look for {remote.name} on the publisher's page."
    return f"{said}. Try again later, or get {remote.name} on another machine."


def _web_page(remote: Remote) -> str:
    return (
        f"{remote.url} gave a web page (HTML) instead of {remote.name}. A login page of the network, a proxy or a "
        f"firewall often answers so: open the address in a browser, then run the same command again."
    )


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    return str(reason) or type(reason).__name__


def _length(path: Path) -> int:
    """The bytes that have arrived; what a link leads to has not."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else 0
