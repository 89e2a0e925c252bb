"""What `esgd run` and `esgd resume` do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from esgd.errors import RecipeError
from esgd.fit import fit
from esgd.health import verdict
from esgd.integrations import Tracker
from esgd.protocols import Inspects
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.result import Result
from esgd.stopping import StopRule
from esgd.studies import Study, begin, founded


def train(
    study: Study,
    recipe: Recipe | None,
    seed: int,
    folder: Path,
    origin: str,
    *,
    extend: bool = False,
    budget: str | None = None,
    rules: str | None = None,
    engine: str = "auto",
    progress: str,
    trackers: Sequence[Tracker],
    stop: Sequence[StopRule],
    allow: Collection[str],
) -> Result:
    """Train a population. If the study has a network to start from, train it first, in a folder beside."""
    task, first = study.task(seed), folder.with_name(f"{folder.name}-{BASELINE}")
    if budget is not None and study.baseline is not None:
        raise RecipeError(
            f"--budget {budget}: {study.name} begins with a network that is trained first, and whose time a budget "
            f"does not count. Leave out the budget."
        )
    begun = begin(study, task, seed=seed, folder=first, engine=engine, progress=progress)
    recipe = recipe and founded(recipe, begun.model if begun else None)
    return fit(
        task,
        recipe,
        seed=seed,
        run=folder,
        extend=extend,
        budget=budget,
        rules=rules,
        engine=engine,
        progress=progress,
        trackers=trackers,
        stop=stop,
        on_interrupt="raise",
        origin=origin,
        allow=allow,
    )


def summary(folder: Path, result: Result) -> dict[str, Any]:
    """What is told of a run that has ended."""
    last = result.history[-1]
    held = sum(line["guarantee"] == "held" for line in result.history)
    return {
        "run": str(folder),
        "fitness": result.fitness,
        "metrics": result.metrics,
        "test": result.test,
        "generations": len(result.history),
        "stopped": result.stopped,
        "guarantee_held": held,
        "leader": last["leader"],
        "parameters": result.population.genome.size,
        "verdict": _verdict(result),
        "notes": [note["text"] for line in result.history for note in line["notes"]],
    }


def _verdict(result: Result) -> str | None:
    """That the run is no better than a constant answer, also where a rule has stopped it and no note says so."""
    constant = result.task.constant_fitness() if isinstance(result.task, Inspects) else None
    note = verdict(result.history[-1], constant)
    return note.text if note else None
