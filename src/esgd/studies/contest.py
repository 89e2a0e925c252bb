"""Rules of `esgd.rules` side by side, each with the same work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from esgd._names.study_names import OWN_RECIPE
from esgd.errors import RecipeError
from esgd.protocols import Engine
from esgd.recipe import Recipe
from esgd.report import Run
from esgd.report.arms import BASELINE
from esgd.run import RunFolder
from esgd.studies.compare import begin, check_own, fit_arm, founded
from esgd.studies.study import Study, with_rules


def compete(
    study: Study,
    rules: Sequence[str],
    *,
    seeds: Iterable[int],
    out: Path,
    work: float | None = None,
    engine: str | Engine = "auto",
    progress: bool | str = True,
) -> list[Run]:
    """Train by each of the rules on every seed; the runs are in `out/RULES/seed-S`.

    Each has `work`, or what the study's own recipe would spend; that recipe can compete, too, as "recipe". If the study
    has a run that comes first, all of them begin with its network. A contest that was interrupted continues where it
    stopped.
    """
    if len(set(rules)) < max(1, len(rules)):
        raise RecipeError(f"rules={list(rules)} names some twice, or none. Give each once, such as ours,single,pbt.")
    if OWN_RECIPE in rules and work is not None:
        raise RecipeError(
            f"work={work:g} is for rules. The study's own recipe has its own work: leave out one of them."
        )
    seeds = list(seeds)
    arms = {seed: {name: _recipe(study, name, work, seed) for name in rules} for seed in seeds}
    for name in (*rules, BASELINE):
        check_own(out / name)
    found = []
    for seed in seeds:
        task, first = study.task(seed), out / BASELINE / f"seed-{seed}"
        begun = begin(study, task, seed=seed, folder=first, engine=engine, progress=progress)
        for name, recipe in arms[seed].items():
            whole, folder = founded(recipe, begun.model if begun else None), out / name / f"seed-{seed}"
            result = fit_arm(name, task, whole, seed=seed, folder=folder, engine=engine, progress=progress)
            found.append(Run(f"{name}, seed {seed}", RunFolder(folder).manifest() or {}, result.history, of=name))
    return sorted(found, key=lambda run: rules.index(run.of))


def _recipe(study: Study, name: str, work: float | None, seed: int) -> Recipe:
    return study.recipe if name == OWN_RECIPE else with_rules(study, name, work, seed).recipe
