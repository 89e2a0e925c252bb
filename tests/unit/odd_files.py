"""What may stand in a run folder that somebody else filled, in place of the file that a run has there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

SPARSE = 10 << 30  # bytes, and none of them on the disk


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_a_file_elsewhere(path: Path) -> None:
    path.symlink_to(path.parent.with_name("elsewhere"))


def a_file_without_end(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE)


IRREGULAR: list[Callable[[Path], None]] = [
    a_pipe,
    a_folder,
    a_link_to_a_device,
    a_link_to_nothing,
    a_link_to_itself,
    a_link_to_a_file_elsewhere,
    a_file_without_end,
]


def put(path: Path, what: Callable[[Path], None]) -> None:
    """Put it in place of the file; a link to a file elsewhere leads to what the file was."""
    if path.exists():
        path.replace(path.parent.with_name("elsewhere"))
    what(path)


NOT_JSON = {
    "deep": "[" * 100_000,
    "rather deep": '{"k": ' + "[" * 900 + "]" * 900 + "}",
    "long number": '{"k": ' + "1" * 5000 + "}",
    "half a character": '{"k": 1, "stage": "\\ud800"}',
    "half a character in a name": '{"k": 1, "\\udfff": 1}',
    "no text": "\udcff\udcfe",
}
"""Lines and tables that no run writes; JSON's own reader takes some of them."""
