"""Ways to harm a file or folder. Each takes its path, something outside the run to lead to, and randomness."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from esgd.run.files import remove

Harm = Callable[[Path, Path, random.Random], None]


def flipped(path: Path, outside: Path, drawn: random.Random) -> None:
    """One bit is another."""
    content = bytearray(path.read_bytes())
    if content:
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(content)


def truncated(path: Path, outside: Path, drawn: random.Random) -> None:
    os.truncate(path, drawn.randrange(path.stat().st_size or 1))


def emptied(path: Path, outside: Path, drawn: random.Random) -> None:
    """No bytes, or no files, are left."""
    if path.is_dir():
        shutil.rmtree(path)
        path.mkdir()
    else:
        path.write_bytes(b"")


def grown(path: Path, outside: Path, drawn: random.Random) -> None:
    """Something follows that the run did not write."""
    with path.open("ab") as file:
        file.write(drawn.randbytes(drawn.choice((1, 100, 10_000))))


def random_bytes(path: Path, outside: Path, drawn: random.Random) -> None:
    path.write_bytes(drawn.randbytes(path.stat().st_size))


def zeros(path: Path, outside: Path, drawn: random.Random) -> None:
    """What a file system may show of a file that was being written when the power went."""
    path.write_bytes(bytes(path.stat().st_size))


def removed(path: Path, outside: Path, drawn: random.Random) -> None:
    remove(path)


def a_folder(path: Path, outside: Path, drawn: random.Random) -> None:
    """A folder with a file in it."""
    remove(path)
    path.mkdir()
    (path / "file").write_text("somebody's")


def a_file(path: Path, outside: Path, drawn: random.Random) -> None:
    remove(path)
    path.write_text("somebody's")


def a_fifo(path: Path, outside: Path, drawn: random.Random) -> None:
    """Whoever opens it waits for a writer."""
    remove(path)
    os.mkfifo(path)


def an_endless_device(path: Path, outside: Path, drawn: random.Random) -> None:
    remove(path)
    path.symlink_to("/dev/zero")


def moved_outside(path: Path, outside: Path, drawn: random.Random) -> None:
    """A link to the right content: to read it is no harm, to write there is."""
    shutil.move(path, outside / "moved")
    path.symlink_to(outside / "moved")


def a_link_to_another(path: Path, outside: Path, drawn: random.Random) -> None:
    remove(path)
    path.symlink_to(outside / "canary")


def a_link_to_nothing(path: Path, outside: Path, drawn: random.Random) -> None:
    remove(path)
    path.symlink_to(outside / "nothing")


def a_link_to_itself(path: Path, outside: Path, drawn: random.Random) -> None:
    remove(path)
    path.symlink_to(path.name)


def _named(*harms: Harm) -> Mapping[str, Harm]:
    return {harm.__name__: harm for harm in harms}


TO_ANYTHING = _named(
    *(emptied, removed, a_fifo, an_endless_device, moved_outside),
    *(a_link_to_another, a_link_to_nothing, a_link_to_itself),
)
TO_FILES = _named(flipped, truncated, grown, random_bytes, zeros, a_folder)
TO_FOLDERS = _named(a_file)
HARMS: Mapping[str, Harm] = {**TO_ANYTHING, **TO_FILES, **TO_FOLDERS}
