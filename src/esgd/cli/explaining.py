"""What `esgd explain` says of a study, also where its data are missing."""

from __future__ import annotations

import sys
from dataclasses import replace

from esgd._algorithm.initialization import prepare
from esgd.costs import Gpus, cost
from esgd.engines import choose
from esgd.errors import MissingDataError, RecipeError
from esgd.explain import Explanation, explain
from esgd.scaling import Workers
from esgd.studies import Study


def explained(
    study: Study,
    *,
    budget: str | None,
    by_recipe: bool,
    engine: str,
    gpus: Gpus | None,
    workers: Workers | None,
) -> Explanation:
    """The recipe of a study and its cost, or the recipe for a budget: `by_recipe` with the epochs of the study's own.

    Where the data are missing, invented ones are measured, one network after another: the engine is chosen by the
    data.
    """
    invented = False
    try:
        task, share = study.task(0), 1.0
    except MissingDataError:
        if study.rehearsal is None or budget is not None:
            raise
        task, share, invented = study.rehearsal.task(), study.rehearsal.share, True
        print(f"Measured on {study.rehearsal.about}.", file=sys.stderr)
    if budget is not None:
        if gpus or workers:
            raise RecipeError("--budget is the time on this machine. Leave out --gpus and --workers, or the budget.")
        return replace(explain(task, study.recipe if by_recipe else None, budget, engine), name=study.name)
    chosen = None if invented else choose(engine, prepare(task, study.recipe, seed=0), study.recipe.load).engine
    costs = cost(task, study.recipe, gpus=gpus, workers=workers, share=share, engine=chosen)
    if study.baseline:
        costs["seconds_before"] = cost(task, study.baseline, share=share)["seconds"]
    return Explanation(recipe=study.recipe, cost=costs, engine=chosen, name=study.name)
