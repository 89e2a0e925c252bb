"""Packages that are installed for a test: a module and the metadata that an installer writes beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from esgd._names.entry_points import read_metadata

STUDY = """
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
from dataclasses import dataclass
import esgd
from esgd.policies import Policy
from esgd.studies import Study

Path(__file__).with_name("imported").touch()
x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()


@dataclass(frozen=True, kw_only=True)
class Drawn:
    lr: float = 0.1

    def __call__(self, draw):
        return Policy(optimizer="sgd", hyper={"lr": self.lr}, schedule=Waning())


@dataclass(frozen=True, kw_only=True)
class Waning:
    def __call__(self, moment):
        return 0.5


def task(seed):
    return esgd.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y))


recipe = esgd.Recipe(population=3, offspring=4, generations=2, sgd_epochs=1, species=Drawn())
study = Study(name="whatever", about="A line about it.", task=task, recipe=recipe)


def scaled(scale, data):
    about = f"{scale} from {data}"
    return Study(name="whatever", about=about, task=task, recipe=recipe)


def wrong(scale, data):
    return 3


def failing(scale, data):
    raise KeyError("frames")


def download(folder):
    return folder / "set"
"""


@contextmanager
def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, groups: Mapping[str, Mapping[str, str]]
) -> Iterator[Path]:
    """A distribution with one module, and entry points in `groups`; its folder is given back."""
    place = folder / f"site-{name}"
    metadata = place / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (place / f"{name}.py").write_text(content)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for group, entries in groups.items() for line in (f"[{group}]", *(map(" = ".join, entries.items())))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(place))
    read_metadata.cache_clear()
    try:
        yield place
    finally:
        sys.path.remove(str(place))
        sys.modules.pop(name, None)
        read_metadata.cache_clear()
