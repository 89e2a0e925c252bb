"""The arms of the paper's comparison (§4) as recipes. Variations are values, not branches: one loop runs them all.

Every arm of a seed begins with the same initial population, asks the same addressed streams, and trains every
individual for the same number of SGD epochs with the same annealing. Baselines keep the best network they ever had.
"""

from __future__ import annotations

from dataclasses import replace

from esgd.operators import Carried, Never
from esgd.recipe import Recipe
from esgd.species import Once
from esgd.studies.study import Study

TITLES = {
    "single": "single baseline",
    "population": "population baseline",
    "no_evolution": "ESGD w/o evolution",
    "esgd": "ESGD",
}


def arms(study: Study) -> dict[str, Recipe]:
    """Single baseline, population baseline, ESGD without evolution, ESGD."""
    recipe = study.recipe
    population = replace(
        recipe,
        species=Once(species=recipe.species),
        backoff=Never(),
        baggage=Carried(),
        evolution_steps=0,
        immigrants=(),
    )
    single = replace(population, population=1, offspring=0, elites=1, mates=1, species=study.single)
    return {
        "single": single,
        "population": population,
        "no_evolution": replace(recipe, evolution_steps=0),
        "esgd": recipe,
    }
