"""Run the arms of a study over seeds and put the paper's comparison together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from esgd._serialization import encode
from esgd.deploy import greedy_soup
from esgd.errors import RecipeError, RunError
from esgd.fit import fit
from esgd.operators import Perturbed
from esgd.progress import announce
from esgd.protocols import Engine, Task
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE, LABELS, POPULATION, SINGLE, TOP, WITHOUT_EVOLUTION
from esgd.result import Result
from esgd.studies.arms import arms, single_baselines
from esgd.studies.study import Study

Histories = dict[str, dict[int, list[dict[str, Any]]]]


def compare(
    study: Study, *, seeds: Iterable[int], out: Path, engine: str | Engine = "auto", progress: bool | str = True
) -> tuple[dict[str, Any], Histories]:
    """The comparison as one JSON object, and the histories behind it; the runs are in `out/seed-S/ARM`.

    A comparison that was interrupted continues where it stopped.
    """
    seeds = list(seeds)
    if not seeds:
        raise RecipeError("there is no seed to compare with. Give at least one: seeds=[0].")
    trials = [Trial(study, seed, out / f"seed-{seed}", engine, progress=progress) for seed in seeds]
    for trial in trials:
        check_own(trial.folder)
    for trial in trials:
        trial.run()
    names = list(trials[0].entries)
    comparison = {
        "task": study.name,
        "about": study.about,
        "recipe": study.recipe.described(),
        **({"published": study.published} if study.published else {}),
        "seeds": seeds,
        "arms": {arm: [trial.entries[arm] for trial in trials] for arm in names},
        "soup": [trial.soup for trial in trials],
    }
    return comparison, {arm: {trial.seed: trial.histories[arm] for trial in trials} for arm in names}


@dataclass
class Trial:
    """All arms of one seed."""

    study: Study
    seed: int
    folder: Path
    engine: str | Engine
    progress: bool | str = field(kw_only=True)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    histories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    soup: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        study, task = self.study, self.study.task(self.seed)
        first = self.folder / BASELINE
        begun = begin(study, task, seed=self.seed, folder=first, engine=self.engine, progress=self.progress)
        network = begun.model if begun else None
        if begun:
            self._enter(BASELINE, begun)
        self._single(task, network)
        for arm, recipe in arms(study).items():
            result = self._fit(task, arm, LABELS[arm], founded(recipe, network))
            self._enter(arm, result)
            if arm == POPULATION:
                last = result.population.best
                self.entries[arm]["last"] = {"fitness": last.fitness, "test": task.test(last.module())}
            if arm == WITHOUT_EVOLUTION:
                self._soup(task, recipe, result)

    def _single(self, task: Task, network: nn.Module | None) -> None:
        """The fittest of the grid."""
        grid = single_baselines(self.study)
        results = [
            self._fit(
                task,
                SINGLE if len(grid) == 1 else f"{SINGLE}-{number}",
                LABELS[SINGLE] + (f", {number} of {len(grid)}" if len(grid) > 1 else ""),
                founded(recipe, network),
            )
            for number, recipe in enumerate(grid, start=1)
        ]
        best = min(range(len(grid)), key=lambda number: (results[number].fitness, number))
        self._enter(SINGLE, results[best])
        if len(grid) > 1:
            self.entries[SINGLE]["chosen"] = {"of": len(grid), "fitness": [result.fitness for result in results]}

    def _fit(self, task: Task, name: str, title: str, recipe: Recipe) -> Result:
        folder = self.folder / name
        return fit_arm(title, task, recipe, seed=self.seed, folder=folder, engine=self.engine, progress=self.progress)

    def _enter(self, arm: str, result: Result) -> None:
        history = result.history
        self.histories[arm] = history
        self.entries[arm] = {
            "seed": self.seed,
            "fitness": result.fitness,
            "top": _top(history, result.fitness),
            "test": result.test,
            "ledger": {name: sum(line["ledger"][name] for line in history) for name in history[-1]["ledger"]},
            "seconds": sum(sum(line["seconds"].values()) for line in history),
        }

    def _soup(self, task: Task, recipe: Recipe, result: Result) -> None:
        best, last = result.state.archive, result.population
        ingredients = last if last.best.fitness <= best.best.fitness else best.join(last)
        soup = greedy_soup(
            task, ingredients, elites=recipe.elites_of(recipe.generations), buffers=recipe.buffers, engine=self.engine
        )
        self.soup = {
            "seed": self.seed,
            "fitness": soup.fitness,
            "test": task.test(soup.model),
            "models": soup.models,
        }


def begin(
    study: Study, task: Task, *, seed: int, folder: Path, engine: str | Engine, progress: bool | str = True
) -> Result | None:
    """Train what comes first in a run folder of its own, if the study has a baseline."""
    if study.baseline is None:
        return None
    title = "the network that all arms start from"
    return fit_arm(title, task, study.baseline, seed=seed, folder=folder, engine=engine, progress=progress)


def fit_arm(
    title: str,
    task: Task,
    recipe: Recipe,
    *,
    seed: int,
    folder: Path,
    engine: str | Engine,
    progress: bool | str,
) -> Result:
    """Train one arm of a comparison in a folder of its own; Ctrl-C ends the whole comparison."""
    announce(f"seed {seed}, {title}", progress)
    return fit(
        task,
        recipe,
        seed=seed,
        run=folder,
        engine=engine,
        progress=progress,
        report=False,
        on_interrupt="raise",
    )


def founded(recipe: Recipe, network: nn.Module | None) -> Recipe:
    """The recipe with the trained network in the places that ask for the baseline: by that name, or by the one that
    the network has in a manifest, which says what it is and not where it lies."""
    if network is None:
        return recipe
    names = (BASELINE, encode(network))
    immigrants = tuple(network if each in names else each for each in recipe.immigrants)
    start = recipe.start
    if isinstance(start, Perturbed) and start.network in names:
        start = replace(start, network=network)
    return replace(recipe, start=start, immigrants=immigrants)


def check_own(folder: Path) -> None:
    """Refuse links among the runs of a seed: a folder that somebody else filled must not decide what is written."""
    for each in (folder, *folder.glob("*")):
        if each.is_symlink():
            raise RunError(
                f"{str(each)!r} is a link. A comparison writes only inside its own folder. Put a folder in its place, "
                f"or choose another --out."
            )


def _top(history: Sequence[dict[str, Any]], fitness: float) -> list[float] | None:
    """The range of the top 15 in the last generation that had the best individual; None for a population of one, and
    where training has never been better than the start."""
    line = next((line for line in reversed(history) if line["best"] == fitness), None)
    if line is None or len(line["fitness"]) == 1:
        return None
    ranked = sorted(f for f in line["fitness"] if f is not None)[:TOP]
    return [ranked[0], ranked[-1]]
