"""The recipe in the paper's notation, read from its plain tables, so that nothing of the recipe has to be imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from esgd.report.numerals import exact
from esgd.report.tables import Table

SYMBOLS = {
    "population": "μ",
    "offspring": "λ",
    "mates": "ρ",
    "elites": "m",
    "generations": "K",
    "sgd_epochs": "K_s",
    "evolution_steps": "K_v",
    "species": "π",
    "mutation": "σ",
}
_GREEK = {"gamma": "γ", "sigma": "σ"}
_UNSAID: tuple[Any, ...] = (
    None,
    {},
    [],
    {"kind": "constant"},
)  # nothing, and a learning rate that does not change within a generation
_RANGES = {"uniform": "U[{low}, {high}]", "log_uniform": "log U[{low}, {high}]", "integers": "{{{low} … {high}}}"}


def recipe_table(recipe: Mapping[str, Any]) -> Table:
    """Every input of Algorithm 1 with its symbol, those the paper names first.

    >>> recipe_table({"population": 10, "elites": 0.6}).rows
    (('μ', 'population', '10'), ('m', 'elites', '6 (60% of μ)'))
    """
    named = [name for name in SYMBOLS if name in recipe]
    others = [name for name in recipe if name not in SYMBOLS]
    rows = [(SYMBOLS.get(name, ""), name.replace("_", " "), _value(name, recipe)) for name in named + others]
    return Table("Inputs of Algorithm 1", ("symbol", "input", "value"), tuple(rows))


def phrase(value: Any) -> str:
    """A value of a recipe's table as a reader would write it.

    >>> phrase({"kind": "sgd", "lr": {"kind": "uniform", "low": 0.03, "high": 1}, "gamma": 0.7})
    'sgd(lr=U[0.03, 1], γ=0.7)'
    """
    if isinstance(value, Mapping) and "kind" in value:
        return _strategy(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {phrase(item)}" for name, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return f"{{{', '.join(map(phrase, value))}}}" if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return exact(value)
    return "none" if value is None else str(value)


def _value(name: str, recipe: Mapping[str, Any]) -> str:
    value, mu = recipe[name], recipe.get("population")
    if name == "elites" and isinstance(value, float) and isinstance(mu, int):
        return f"{max(1, round(value * mu))} ({value:.0%} of μ)"
    return phrase(value)


def _strategy(table: Mapping[str, Any]) -> str:
    kind = str(table["kind"])
    fields = {name: item for name, item in table.items() if name != "kind" and item not in _UNSAID}
    if kind in _RANGES and {"low", "high"} <= set(fields):
        return _RANGES[kind].format(low=phrase(fields["low"]), high=phrase(fields["high"]))
    if kind == "mixture" and "species" in fields:
        weights = f", weights {phrase(fields['weights'])}" if "weights" in fields else ""
        return " or ".join(map(phrase, fields["species"])) + weights
    if kind == "policy" and "optimizer" in fields:
        kind = str(fields.pop("optimizer"))
        fields = {**fields.pop("hyper", {}), **{name: item for name, item in fields.items() if name != "annealing"}}
    name = kind.rpartition(":")[2] if kind.startswith("esgd.") else kind.replace("_", " ")
    inner = ", ".join(f"{_GREEK.get(field, field)}={phrase(item)}" for field, item in fields.items())
    return f"{name}({inner})" if inner else name
