"""A line of history.jsonl: what is known of one generation, and why a value is no such line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import shorten
from typing import Any, NotRequired, TypedDict, get_args

from esgd.ranges import HIGHEST_RATE, Basis

LARGEST = 10**300
"""No loss and no number of samples comes near; what is larger would overflow somewhere on its way to a picture."""


CLOCK = {"budget", "begun", "elapsed", "epochs", "reached"}
"""What a generation of a run with a budget of time says: the budget in seconds, when it began and ended, its K_s, and
how much of the run was done after it. Earlier versions did not write the seconds of SGD, `sgd`, there."""
NEAR_ONE = 1.0 + 1e-6
"""How much of a run can be done, with what is lost by rounding."""


class Line(TypedDict):
    """The record of generation `k`, as `Generation.record()` makes it. A null is a number that is not finite.

    What is not required was not written by every earlier version.
    """

    k: int
    best: float | None
    elite_mean: float | None
    fitness: list[float | None]
    offspring_among_elites: float | None
    backed_off: int
    checked: int
    leader: Mapping[str, Any] | None
    ledger: Mapping[str, int]
    seconds: Mapping[str, float]
    guarantee: str
    stage: NotRequired[str]
    waiver: NotRequired[str]
    test: NotRequired[Mapping[str, float | None] | None]
    pick: NotRequired[Mapping[str, float | None]]
    metrics: NotRequired[Mapping[str, float | None]]
    select: NotRequired[Mapping[str, str]]
    notes: NotRequired[list[Mapping[str, str]]]
    ranges: NotRequired[list[Mapping[str, Any]]]
    births: NotRequired[list[Mapping[str, Any]]]
    policies: NotRequired[list[Mapping[str, Any]]]
    founders: NotRequired[int]
    diversity: NotRequired[float | None]
    diverged: NotRequired[int]
    mean: NotRequired[float | None]
    elites: NotRequired[int]
    bytes_moved: NotRequired[int]
    clock: NotRequired[Mapping[str, float]]


def misplaced(line: Any, k: int) -> str:
    """Why a parsed line is not the one of generation k, whatever else it says; nothing where it is."""
    placed = isinstance(line, dict) and type(line.get("k")) is int and line["k"] == k
    return "" if placed else f"it is not the record of generation {k}"


def line_fault(line: Any, k: int) -> str:
    """Why a parsed line is no record of generation k; nothing where it is one.

    >>> line_fault([1], 1), line_fault({"k": "one"}, 1)
    ('it is a list, not an object', "'k' is 'one'")
    """
    if not isinstance(line, dict):
        return f"it is a {type(line).__name__}, not an object"
    for name, fits in _FIELDS.items():
        if name not in line:
            return f"it has no {name!r}"
        if not fits(line[name]):
            return f"{name!r} is {shorten(repr(line[name]), 200)}"
    for name, fits in _OPTIONAL.items():
        if name in line and not fits(line[name]):
            return f"{name!r} is {shorten(repr(line[name]), 200)}"
    if "births" in line and len(line["births"]) != len(line["fitness"]):
        return f"it has {len(line['fitness'])} fitnesses and {len(line['births'])} births"
    return "" if line["k"] == k else f"it is about generation {line['k']}"


def timing_fault(line: Mapping[str, Any]) -> str:
    """Why a line does not say what took how long, by which later generations are planned; nothing where it does.

    >>> timing_fault({"k": 3, "seconds": {"sgd": -1.0, "fitness": 0.5}})
    "'seconds' of generation 3 is {'sgd': -1.0, 'fitness': 0.5}"
    """
    for name, fits in _TIMING.items():
        if (name in line or name != "clock") and not fits(line.get(name)):
            return f"{name!r} of generation {line.get('k')} is {shorten(repr(line.get(name)), 200)}"
    return ""


def born(id_: str) -> tuple[int, int, int]:
    """When an individual came to be: generation, evolution step, number. Step 0 is the SGD step.

    >>> born("3.1.7"), born("3.1.7@5")
    ((3, 1, 7), (5, 0, 7))
    """
    address, *ends = id_.split("@")
    k, v, i = map(int, address.split("."))
    return (int(ends[-1]), 0, i) if ends else (k, v, i)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, float) or _count(value)


def _measured(value: Any) -> bool:
    """A number, or the null of what diverged."""
    return value is None or _number(value)


def _duration(value: Any) -> bool:
    return _number(value) and 0 <= value < LARGEST


def _timed(value: Any) -> bool:
    """The seconds of a generation, with those that an estimate is made from."""
    return _table_of(_duration)(value) and {"sgd", "fitness"} <= set(value)


def _clock(value: Any) -> bool:
    """A clock that can be: a generation ends after it began, and no more is done than all."""
    return (
        _table_of(_duration)(value)
        and set(value) >= CLOCK
        and value["begun"] <= value["elapsed"]
        and value["epochs"] > 0
        and value["budget"] > 0
        and value["reached"] <= NEAR_ONE
    )


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _table_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(fits, value.values()))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _policy(value: Any) -> bool:
    """A policy's record, or the null of an individual that was never trained."""
    if value is None:
        return True
    if not isinstance(value, Mapping) or not _text(value.get("optimizer")):
        return False
    schedule = value.get("schedule", {"kind": ""})
    return isinstance(value.get("settings", {}), Mapping) and isinstance(schedule, Mapping) and "kind" in schedule


def _id(value: Any) -> bool:
    """Three numbers, "k.v.i"; and "@k" for every time that the end of a trajectory became an individual of its own."""
    return _text(value) and bool(re.fullmatch(r"\d{1,9}(\.\d{1,9}){2}(@\d{1,9})*", value))


def _birth(value: Any) -> bool:
    """An individual whose parents are older than itself; brothers and sisters are not."""
    if not isinstance(value, Mapping) or not _id(value.get("id")) or not _list_of(_id)(value.get("parents")):
        return False
    return all(born(parent)[:2] < born(value["id"])[:2] for parent in value["parents"])


def _ledger(value: Any) -> bool:
    return _table_of(_count)(value) and {"sgd_forward", "sgd_backward", "fitness_sgd", "fitness_evolution"} <= set(
        value
    )


def _trained(value: Any) -> bool:
    """A policy's record with whom it trained, and how that went."""
    return (
        isinstance(value, Mapping)
        and _policy(value)
        and _id(value.get("id"))
        and _measured(value.get("lr"))
        and _measured(value.get("after"))
    )


def _note(value: Any) -> bool:
    return isinstance(value, Mapping) and _text(value.get("kind")) and _text(value.get("text"))


def _range(value: Any) -> bool:
    """What a range test has found: a top, and the rates, steps and losses of its trials."""
    return (
        isinstance(value, Mapping)
        and _text(value.get("optimizer"))
        and value.get("basis") in get_args(Basis)
        and _rate(value.get("top"))
        and _number(value.get("low"))
        and 0 <= value["low"] <= value["top"] <= HIGHEST_RATE
        and _measured(value.get("start"))
        and _list_of(_trial)(value.get("probes"))
        and _count(value.get("pool", 1))
    )


def _trial(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and _rate(value[0]) and _count(value[1]) and _measured(value[2])


def _rate(value: Any) -> bool:
    return _number(value) and 0 < value < LARGEST


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "k": _count,
    "best": _measured,
    "elite_mean": _measured,
    "fitness": _list_of(_measured),
    "offspring_among_elites": _measured,
    "backed_off": _count,
    "checked": _count,
    "leader": _policy,
    "ledger": _ledger,
    "seconds": _table_of(_number),
    "guarantee": _text,
}
_OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "stage": _text,
    "waiver": _text,
    "test": lambda value: value is None or _table_of(_measured)(value),
    "pick": lambda value: _table_of(_measured)(value) and {"loss", "fitness"} <= set(value),
    "metrics": _table_of(_measured),
    "select": lambda value: _table_of(_text)(value) and set(value) == {"metric", "mode"},
    "notes": _list_of(_note),
    "ranges": _list_of(_range),
    "births": _list_of(_birth),
    "policies": _list_of(_trained),
    "founders": _count,
    "diversity": _measured,
    "diverged": _count,
    "clock": _clock,
}
_TIMING: dict[str, Callable[[Any], bool]] = {"seconds": _timed, "ledger": _ledger, "clock": _clock}
