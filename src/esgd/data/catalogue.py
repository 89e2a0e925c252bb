"""The datasets that can be downloaded, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from esgd.data.an4 import AN4
from esgd.data.cifar10 import CIFAR10
from esgd.data.places import again, obtain
from esgd.data.ptb import PTB
from esgd.errors import DataError, did_you_mean

_DATASETS = {dataset.name: dataset for dataset in (CIFAR10, PTB, AN4)}

KNOWN: Mapping[str, str] = MappingProxyType({name: dataset.about for name, dataset in _DATASETS.items()})
"""What can be downloaded, each with a line about it."""


def download(name: str, folder: Path | None = None) -> Path:
    """See that a dataset is there and is the publisher's, downloading what is missing; returns its folder."""
    if name not in _DATASETS:
        raise DataError(f"{name!r} is not a dataset that can be downloaded. {did_you_mean(name, _DATASETS)}")
    dataset = _DATASETS[name]
    place = obtain(dataset, folder, download=True)
    fault = dataset.fault(place)
    if fault:
        raise DataError(f"{place} is not {dataset.title} as published: {fault}. {again(name)}")
    return place
