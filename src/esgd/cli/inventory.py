"""What is built in, read from the packages themselves, and the studies that installed packages offer."""

from __future__ import annotations

from dataclasses import is_dataclass
from types import ModuleType
from typing import Any

from esgd import engines, operators, schedules, species
from esgd._serialization import kind_of
from esgd.errors import EsgdError
from esgd.studies.finding import find_study, study_names


def inventory() -> dict[str, Any]:
    """Package → short name → first line of its documentation."""
    return {
        "tasks": {name: _about(name) for name in study_names()},
        "species": _strategies(species),
        "operators": _strategies(operators),
        "schedules": _strategies(schedules),
        "engines": {
            "auto": "An engine by rule, from the network, the recipe and this machine: the same in every run.",
            **_strategies(engines),
        },
    }


def _about(name: str) -> str:
    try:
        return find_study(name).about
    except EsgdError as error:  # of a package that offers it: the others are listed all the same
        return f"cannot be loaded: {error}"


def _strategies(room: ModuleType) -> dict[str, str]:
    public = [getattr(room, name) for name in room.__all__]
    return {
        kind_of(cls): " ".join((cls.__doc__ or "").split("\n\n")[0].split())
        for cls in public
        if isinstance(cls, type) and is_dataclass(cls)
    }
