"""What is built in, and the studies that installed packages offer, read from the text of their modules.

`esgd list` answers at once: it imports neither PyTorch nor the code of others. Only a study without a docstring has to
be imported, for its `about`.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from esgd._names.entry_points import STUDIES, offered
from esgd._names.study_names import BUILT_IN, study_names
from esgd._text.wording import short_name
from esgd.cli.docstrings import dataclasses_of, first_paragraph
from esgd.cli.starting import importing
from esgd.errors import EsgdError


def inventory() -> dict[str, Any]:
    """Package → short name → first paragraph of its documentation."""
    return {
        "tasks": {name: _about(name) for name in study_names()},
        "species": _strategies("esgd.species"),
        "operators": _strategies("esgd.operators"),
        "schedules": _strategies("esgd.schedules"),
        "engines": {
            "auto": "An engine by rule, from the network, the recipe and this machine: the same in every run.",
            **_strategies("esgd.engines"),
        },
    }


def show_inventory(rooms: dict[str, Any]) -> None:
    """Print everything that is built in, one line each."""
    console = Console()
    for room, things in rooms.items():
        console.print(f"[bold]{room}[/bold]")
        for name, about in things.items():
            console.print(f"  {name:<20}{about}", highlight=False, markup=False, soft_wrap=True)


def _about(name: str) -> str:
    places = [BUILT_IN[name]] if name in BUILT_IN else [entry.value for entry in offered(STUDIES)[name]]
    module, _, attribute = places[0].partition(":")
    written = first_paragraph(module, attribute) if len(places) == 1 else None
    return written or _imported(name)


def _imported(name: str) -> str:
    with importing():
        from esgd.studies import find_study
    try:
        return find_study(name).about
    except EsgdError as error:  # of a package that offers it: the others are listed all the same
        return f"cannot be loaded: {error}"


def _strategies(room: str) -> dict[str, str]:
    return {short_name(name): about for name, about in dataclasses_of(room)}
