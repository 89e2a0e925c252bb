"""Run the arms of a study over seeds and put the paper's comparison together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from esgd.fit import Result, fit
from esgd.progress import announce
from esgd.protocols import Engine
from esgd.studies.arms import TITLES, arms
from esgd.studies.soup import greedy_soup
from esgd.studies.study import Study

TOP = 15  # table 1 shows the range of the top 15 individuals

Histories = dict[str, dict[int, list[dict[str, Any]]]]


def compare(
    study: Study, *, seeds: Iterable[int], out: Path, engine: str | Engine = "auto", progress: bool = True
) -> tuple[dict[str, Any], Histories]:
    """The comparison as one JSON object, and the histories behind it; the runs are in `out/seed-S/ARM`.

    A comparison that was interrupted goes on where it stopped.
    """
    recipes, seeds = arms(study), list(seeds)
    entries: dict[str, list[dict[str, Any]]] = {arm: [] for arm in recipes}
    histories: Histories = {arm: {} for arm in recipes}
    soups = []
    for seed in seeds:
        task = study.task(seed)
        for arm, recipe in recipes.items():
            if progress:
                announce(f"seed {seed}, {TITLES[arm]}")
            folder = out / f"seed-{seed}" / arm
            result = fit(task, recipe, seed=seed, run=folder, engine=engine, progress=progress, report=False)
            entry = _entry(seed, result)
            if arm == "population":
                last = result.population.best
                entry["last"] = {"fitness": last.fitness, "test": task.test(last.module())}
            if arm == "no_evolution":
                soup = greedy_soup(
                    task, result.population, elites=recipe.elite_count, buffers=recipe.buffers, engine=engine
                )
                soups.append(
                    {"seed": seed, "fitness": soup.fitness, "test": task.test(soup.model), "models": soup.models}
                )
            entries[arm].append(entry)
            histories[arm][seed] = result.history
    comparison = {
        "task": study.name,
        "about": study.about,
        "recipe": study.recipe.described(),
        "seeds": seeds,
        "arms": entries,
        "soup": soups,
    }
    return comparison, histories


def _entry(seed: int, result: Result) -> dict[str, Any]:
    history = result.history
    return {
        "seed": seed,
        "fitness": result.fitness,
        "top": _top(history),
        "test": result.test,
        "ledger": {name: sum(line["ledger"][name] for line in history) for name in history[-1]["ledger"]},
        "seconds": sum(sum(line["seconds"].values()) for line in history),
    }


def _top(history: Sequence[dict[str, Any]]) -> list[float] | None:
    """The range of the top 15 in the generation that had the best individual; None for a population of one."""
    known = [line for line in history if line["best"] is not None]
    if not known or len(known[0]["fitness"]) == 1:
        return None
    lowest = min(line["best"] for line in known)
    line = next(line for line in reversed(known) if line["best"] == lowest)
    ranked = sorted(f for f in line["fitness"] if f is not None)[:TOP]
    return [ranked[0], ranked[-1]]
