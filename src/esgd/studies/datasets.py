"""Data sets that installed packages offer to download."""

from __future__ import annotations

from pathlib import Path

from esgd._names.entry_points import DATASETS, check_dataset, load


def download(name: str, folder: Path | None = None) -> Path:
    """See that a data set is there and is the publisher's, downloading what is missing; returns its folder."""
    check_dataset(name)
    return Path(load(DATASETS, name)(folder))
