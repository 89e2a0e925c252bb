"""Where datasets are kept, and what to say when one is not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_cache_path

from esgd.errors import DataError, MissingDataError

VARIABLE = "ESGD_DATA"


@dataclass(frozen=True)
class Dataset:
    """A publisher's dataset: how it is laid out, and how to come by it.

    `files` must all be in one of `folders` of the data folder ("." is the data folder itself, because people also name
    the innermost one). `install` downloads the set into a data folder; `fault` says how a copy differs from the
    publisher's, or nothing. `lookalikes` are other editions that people have, each with a sentence about it.
    """

    name: str
    title: str
    about: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    page: str
    install: Callable[[Path], object]
    fault: Callable[[Path], str]
    lookalikes: Mapping[str, str] = field(default_factory=dict)

    def download(self, folder: Path | None = None) -> Path:
        """See that the set is there and is the publisher's, downloading what is missing; returns its folder."""
        place = obtain(self, folder, download=True)
        fault = self.fault(place)
        if fault:
            raise DataError(f"{place} is not {self.title} as published: {fault}. {again(self.name)}")
        return place


def data_folder(given: Path | None = None) -> Path:
    """The folder that datasets are downloaded to: `given`, else $ESGD_DATA, else one in the user's cache.

    >>> data_folder(Path("somewhere")).name
    'somewhere'
    """
    return _roots(given)[0]


def obtain(dataset: Dataset, given: Path | None, *, download: bool) -> Path:
    """The folder that holds the set; where there is none, it is downloaded first if that is wished."""
    if download and _complete(dataset, given) is None:
        dataset.install(data_folder(given))
    found = _complete(dataset, given)
    if found is None:
        some = any(len(_missing(dataset, place)) < len(dataset.files) for place in _places(dataset, given))
        raise (DataError if some else MissingDataError)(_absence(dataset, given))
    return found


def again(name: str) -> str:
    """What to do about a damaged file."""
    return f"Remove it, then get it again with `esgd data {name}`."


def _roots(given: Path | None) -> list[Path]:
    """A folder that is named is the only one looked at; otherwise the environment's goes before the cache."""
    named = os.environ.get(VARIABLE) if given is None else str(given)
    if named and Path(named).expanduser().is_file():
        raise DataError(f"{named} is a file. --data and ${VARIABLE} take the folder that the datasets are in.")
    if given is not None:
        return [Path(given).expanduser()]
    cache = user_cache_path("esgd", appauthor=False) / "data"
    return [Path(named).expanduser(), cache] if named else [cache]


def _places(dataset: Dataset, given: Path | None) -> list[Path]:
    return [root / folder for root in _roots(given) for folder in dataset.folders]


def _missing(dataset: Dataset, place: Path) -> list[str]:
    return [name for name in dataset.files if not (place / name).is_file()]


def _complete(dataset: Dataset, given: Path | None) -> Path | None:
    return next((place for place in _places(dataset, given) if not _missing(dataset, place)), None)


def _absence(dataset: Dataset, given: Path | None) -> str:
    """What is missing, where it was looked for, and how to get it."""
    places = _places(dataset, given)
    partial = next((place for place in places if len(_missing(dataset, place)) < len(dataset.files)), None)
    if partial:
        wrong = f"{dataset.title} is incomplete: {partial} has no {', '.join(_missing(dataset, partial))}."
    else:
        wrong = f"{dataset.title} was not found: there is no {dataset.files[0]}."
    other = [
        f" {root / name} {sentence}"
        for root in _roots(given)
        for name, sentence in dataset.lookalikes.items()
        if (root / name).exists()
    ]
    return (
        f"{wrong} Looked in {', '.join(map(str, places))}.{''.join(other)} Get it with `esgd data {dataset.name}` "
        f"(or by hand from {dataset.page}), or say where it is: --data FOLDER, the argument `folder` in Python, or "
        f"${VARIABLE}."
    )
