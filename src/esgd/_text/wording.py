"""How times, numbers and strategies are written for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_GREEK = {"gamma": "γ", "sigma": "σ"}
_UNSAID: tuple[Any, ...] = (
    None,
    {},
    [],
    {"kind": "constant"},
)  # nothing, and a learning rate that does not change within a generation
_OFF = {"warmup": 0, "accumulate": 1}
"""Fields that say nothing at these values."""

_RANGES = {"uniform": "U[{low}, {high}]", "log_uniform": "log U[{low}, {high}]", "integers": "{{{low} … {high}}}"}


def duration(seconds: float) -> str:
    """A time as people say it, with the precision they need.

    >>> duration(0.042), duration(42.3), duration(170), duration(7_300), duration(200_000)
    ('0.042 s', '42 s', '3 min', '2 h 02 min', '2 days 7 h')
    """
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 0.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} day{'s' if days > 1 else ''} {hours % 24} h"
    return f"{hours} h {minutes % 60:02d} min" if hours else f"{minutes} min"


def exact(value: float) -> str:
    """A number that a person once wrote down, as they would have.

    >>> exact(0.001), exact(1e-6), exact(0.5), exact(60.0)
    ('0.001', '1e-6', '0.5', '60')
    """
    spelt = f"{value:.6g}"
    return short_exponent(spelt) if "e" in spelt else spelt


def short_exponent(spelt: str) -> str:
    """2.68e-04 as 2.68e-4."""
    mantissa, _, exponent = spelt.partition("e")
    return f"{mantissa}e{int(exponent)}"


def in_words(value: Any) -> str:
    """A value of a recipe's table as a reader would write it; a strategy as a call.

    >>> in_words({"kind": "sgd", "lr": {"kind": "uniform", "low": 0.03, "high": 1}, "gamma": 0.7})
    'sgd(lr=U[0.03, 1], γ=0.7)'
    """
    if isinstance(value, Mapping) and "kind" in value:
        return _strategy(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {in_words(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return f"{{{', '.join(map(in_words, value))}}}" if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return exact(value)
    return "none" if value is None else str(value)


def _strategy(table: Mapping[str, Any]) -> str:
    kind = str(table["kind"])
    fields = {
        name: item
        for name, item in table.items()
        if name != "kind" and item not in _UNSAID and (name not in _OFF or item != _OFF[name])
    }
    if kind in _RANGES and {"low", "high"} <= set(fields):
        return _RANGES[kind].format(low=in_words(fields["low"]), high=in_words(fields["high"]))
    if kind == "mixture" and "species" in fields:
        weights = f", weights {in_words(fields['weights'])}" if "weights" in fields else ""
        return " or ".join(map(in_words, fields["species"])) + weights
    if kind == "policy" and "optimizer" in fields:
        kind = str(fields.pop("optimizer"))
        fields = {**fields.pop("hyper", {}), **{name: item for name, item in fields.items() if name != "annealing"}}
    name = kind.rpartition(":")[2] if kind.startswith("esgd.") else kind.replace("_", " ")
    inner = ", ".join(f"{_GREEK.get(field, field)}={in_words(item)}" for field, item in fields.items())
    return f"{name}({inner})" if inner else name


def short_name(name: str) -> str:
    """The name that a class of ours has in TOML and JSON.

    >>> short_name("RelativeGaussian")
    'relative_gaussian'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def path_fault(text: str) -> str:
    """Why a text is no path, after the text itself; nothing if it may be one. An empty one, as of a variable that is
    not set, would be the current folder."""
    if not text:
        return f"{text!r} is empty"
    return f"{text!r} has a null character, which no path has" if "\0" in text else ""
