"""Rules of `esgd.rules` side by side, each with the same work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from esgd.errors import RecipeError
from esgd.protocols import Engine
from esgd.report import Run
from esgd.run import RunFolder
from esgd.studies.compare import check_own, fit_arm
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

    Each has `work`, or what the study's own recipe would spend. A contest that was interrupted continues where it
    stopped.
    """
    if len(set(rules)) < max(1, len(rules)):
        raise RecipeError(f"rules={list(rules)} names some twice, or none. Give each once, such as ours,single,pbt.")
    arms = [(seed, name, with_rules(study, name, work, seed).recipe) for seed in seeds for name in rules]
    for name in rules:
        check_own(out / name)
    found = []
    for seed, name, recipe in arms:
        folder = out / name / f"seed-{seed}"
        result = fit_arm(name, study.task(seed), recipe, seed=seed, folder=folder, engine=engine, progress=progress)
        found.append(Run(f"{name}, seed {seed}", RunFolder(folder).manifest() or {}, result.history, of=name))
    return sorted(found, key=lambda run: rules.index(run.of))
