"""What is attacked: commands, what the folder is before them, and what it must be in the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.campaign import reference
from tests.campaign.case import Ground, Unavailable
from tests.campaign.judge import LINGERING


@dataclass(frozen=True)
class Scenario:
    """A command, what the folder is before it, and what it must be in the end."""

    words: tuple[str, ...]
    like: Callable[[Path], Path]
    begin: Callable[[Path, Path], object] = lambda root, home: None
    seconds: float = 1.2
    """How long it takes, about: random moments are drawn from this span."""
    lingering: float = LINGERING
    """Seconds for which processes of it may stay when it is killed."""


def _half(root: Path, home: Path) -> None:
    shutil.copytree(reference.half(root), home / "run")


def _spoilt(root: Path, home: Path) -> None:
    """A finished run whose last checkpoint, model and recipe have to be made again."""
    run = shutil.copytree(reference.finished(root), home / "run")
    (run / "checkpoint" / "000004" / "tensors.safetensors").write_bytes(b"")
    for name in ("model.safetensors", "recipe.toml"):
        (run / name).unlink()


def _engine(engine: str) -> tuple[str, ...]:
    return tuple(engine if word == reference.ENGINE else word for word in reference.RUN)


SCENARIOS: Mapping[str, Scenario] = {
    "run": Scenario(reference.RUN, reference.finished),
    "resume": Scenario(reference.RESUME, reference.finished, _half),
    "mend": Scenario(reference.RESUME, reference.finished, _spoilt),
    "compare": Scenario(reference.COMPARE, reference.compared, seconds=2.5),
    "pool": Scenario(_engine("pool:workers=2"), reference.finished, seconds=6.0),
    "ray": Scenario(_engine("ray:workers=2"), reference.finished, seconds=15.0, lingering=90.0),  # docs/cluster.md: 61
}


def changes_of(scenario: str, root: Path) -> list[str]:
    """The changes that a scenario makes in the run's folder, in their order."""
    name = "run" if scenario in ("pool", "ray") else scenario  # engines change nothing in a folder
    made = SCENARIOS[name]
    return reference.changes(root, name, made.words, partial(made.begin, root))


def change_at(place: float, scenario: str, root: Path) -> int:
    """The number of the change at a place, from 0 to 1, among them."""
    return int(place * len(changes_of(scenario, root)))


def need_ray() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        raise Unavailable("Ray is not installed") from None


def begun(name: str, ground: Ground) -> Scenario:
    """The scenario of this name, with its ground laid; `Unavailable` where the machine lacks what it needs."""
    if name == "ray":
        need_ray()
    SCENARIOS[name].begin(ground.root, ground.folder)
    return SCENARIOS[name]
