"""Data sets that installed packages offer to download."""

from __future__ import annotations

from pathlib import Path

from esgd._entry_points import DATASETS, load, offered
from esgd.errors import DataError, did_you_mean


def download(name: str, folder: Path | None = None) -> Path:
    """See that a data set is there and is the publisher's, downloading what is missing; returns its folder."""
    if name not in offered(DATASETS):
        raise DataError(f"{name!r} is not a data set that can be downloaded. {did_you_mean(name, offered(DATASETS))}")
    return Path(load(DATASETS, name)(folder))
