"""The arms of the paper's comparison (§4) as recipes. Variations are values, not branches: one loop runs them all.

Every arm of a seed begins with the same initial population, asks the same addressed streams, and trains every
individual for the same number of SGD epochs with a schedule of the same quality. Baselines keep the best network they
ever had.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from esgd.errors import RecipeError, shown
from esgd.operators import Carried, Never
from esgd.recipe import Recipe
from esgd.report.arms import ESGD, POPULATION, WITHOUT_EVOLUTION
from esgd.species import Once
from esgd.species.auto import settled_species
from esgd.studies.study import Single, Study


def arms(study: Study) -> dict[str, Recipe]:
    """What is trained as a population, ESGD last; the single baseline comes beside it."""
    return {
        POPULATION: population_baseline(study),
        WITHOUT_EVOLUTION: replace(study.recipe, evolution_steps=0),
        ESGD: study.recipe,
    }


def population_baseline(study: Study) -> Recipe:
    """Hyper-parameters "randomly decided at the beginning and then fixed" (§4), no back-off, as many epochs as ESGD."""
    recipe = study.recipe
    if not recipe.epochs_of(1):
        raise RecipeError(
            f"sgd_epochs={shown(recipe.sgd_epochs)} has no epochs in generation 1. The baselines have as many epochs "
            f"as ESGD, in generations of this length. Use sgd_epochs=1 or more, or `esgd run` for evolution alone."
        )
    return replace(
        recipe,
        species=Once(species=study.population or settled_species(recipe.species)),
        backoff=Never(),
        baggage=Carried(),
        generations=ceil(recipe.total_epochs / recipe.epochs_of(1)),
        fine_tuning=None,
        evolution_steps=0,
        immigrants=(),
    )


def single_baselines(study: Study) -> list[Recipe]:
    """One network each, for as many epochs as an individual of the population; the fittest is *the* baseline."""
    alone = replace(population_baseline(study), population=1, offspring=0, elites=1, mates=1)
    grid = study.single if isinstance(study.single, tuple) else (study.single,)
    singles = [each if isinstance(each, Single) else Single(species=each) for each in grid]
    return [replace(alone, species=each.species, backoff=each.backoff) for each in singles]
