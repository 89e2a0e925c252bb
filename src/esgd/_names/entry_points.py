"""What installed packages offer to `esgd`, by entry points in their pyproject.toml.

    [project.entry-points."esgd.studies"]
    mine = "mypackage.studies:mine"

| group           | name            | what it names                                                                    |
|-----------------|-----------------|----------------------------------------------------------------------------------|
| `esgd.studies`  | of the study    | a `Study`, or a function of (scale, data folder) that returns one                |
| `esgd.datasets` | of the data set | a function that downloads it: of (data folder or None), returns the set's folder |
| `esgd.renamed`  | a former name   | the class that has it now, so that run folders with the former name can be read  |

A former name is written with dots, `package.module.Class`. Names are read from the metadata of installed packages:
nothing is imported until it is asked for by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from esgd.errors import DataError, EsgdError, TaskError, did_you_mean

STUDIES, DATASETS, RENAMED = "esgd.studies", "esgd.datasets", "esgd.renamed"


Offers = Mapping[str, tuple[EntryPoint, ...]]
"""Name → what is offered by it: one entry point, or several if packages disagree."""


def offered(group: str) -> Offers:
    """What installed packages offer in a group."""
    return read_metadata()[group]


@cache
def read_metadata() -> Mapping[str, Offers]:
    """Group → what is offered in it. It takes a look at every installed package, so it is done once in a process."""
    found: dict[str, dict[str, tuple[EntryPoint, ...]]] = {STUDIES: {}, DATASETS: {}, RENAMED: {}}
    everything = entry_points()
    for group, names in found.items():
        for entry in sorted(everything.select(group=group), key=lambda each: (each.name, each.value)):
            names[entry.name] = (*names.get(entry.name, ()), entry)
    return found


def package_of(entry: EntryPoint) -> str:
    """The package that an entry point leads to."""
    return entry.module.partition(".")[0]


def load(group: str, name: str) -> Any:
    """Import what is offered by a name."""
    entry, *others = offered(group)[name]
    if others:
        places = " and ".join(repr(each.value) for each in (entry, *others))
        raise TaskError(f"{name!r} is offered more than once in {group!r}: by {places}. Uninstall all but one.")
    try:
        return entry.load()
    except EsgdError:
        raise
    except Exception as error:
        raise TaskError(
            f"{name!r} is offered as {entry.value!r}, but importing it raised {type(error).__name__}: {error}. Correct "
            f"or uninstall the package; --debug shows where it happened."
        ) from error


def check_dataset(name: str) -> None:
    """Refuse a data set that no installed package offers."""
    if name not in offered(DATASETS):
        raise DataError(f"{name!r} is not a data set that can be downloaded. {did_you_mean(name, offered(DATASETS))}")


def current_name(name: str) -> str:
    """What `package.module:thing` goes by now, if it was renamed."""
    entries = offered(RENAMED).get(name.replace(":", "."), ())
    return entries[0].value if len(entries) == 1 else name
