"""The recipe in the paper's notation, read from its plain tables, so that nothing of the recipe has to be imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from esgd._text.wording import in_words
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


def recipe_table(recipe: Mapping[str, Any]) -> Table:
    """Every input of Algorithm 1 with its symbol, those the paper names first.

    >>> recipe_table({"population": 10, "elites": 0.6}).rows
    (('μ', 'population', '10'), ('m', 'elites', '6 (60% of μ)'))
    """
    named = [name for name in SYMBOLS if name in recipe]
    others = [name for name in recipe if name not in SYMBOLS]
    rows = [(SYMBOLS.get(name, ""), name.replace("_", " "), _value(name, recipe)) for name in named + others]
    return Table("Inputs of Algorithm 1", ("symbol", "input", "value"), tuple(rows))


def _value(name: str, recipe: Mapping[str, Any]) -> str:
    value, mu = recipe[name], recipe.get("population")
    if name == "elites" and isinstance(value, float) and isinstance(mu, int):
        return f"{max(1, round(value * mu))} ({value:.0%} of μ)"
    return in_words(value)
