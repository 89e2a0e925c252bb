"""Where a run folder is."""

from __future__ import annotations

import re
from os import PathLike, fspath
from pathlib import Path

from esgd._text.wording import path_fault
from esgd.errors import RunError, shown

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/")  # a Path has made one slash of two; one letter is a drive of Windows


def located(path: str | Path) -> Path:
    """The path of a run folder, with ~ replaced by the home folder; an address on the network is refused, and what is
    no path.

    >>> located("runs/mine").as_posix()
    'runs/mine'
    """
    if not isinstance(path, str | PathLike) or not isinstance(fspath(path), str):
        raise RunError(
            f"run={shown(path)} is a {type(path).__name__}, and a run folder is named by a path. Write run='runs/mine'."
        )
    if fault := path_fault(fspath(path)):
        raise RunError(f"run={fault}. Write the path of a folder, such as 'runs/mine'; '.' is this folder.")
    found = _URL.match(str(path))
    if found:
        address = _URL.sub(r"\1://", str(path).replace("://", ":/", 1), count=1)
        raise RunError(
            f"{address!r} is an address of {found[1]}, and a run folder is a folder of this machine: its files are "
            f"renamed, locked and written at their end, which no object store can do. Use a local or mounted folder "
            f"and copy it, for example with `aws s3 sync` or `rclone copy`; `esgd verify` tells whether a copy is "
            f"whole."
        )
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise RunError(f"{str(path)!r} names no folder: {error}. Write the path of the folder itself.") from error
