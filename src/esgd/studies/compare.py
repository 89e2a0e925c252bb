"""Run the arms of a study over seeds and put the paper's comparison together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from esgd.fit import Result, fit
from esgd.operators import Perturbed
from esgd.progress import announce
from esgd.protocols import Engine, Task
from esgd.recipe import Recipe
from esgd.report.arms import EQUAL_WORK, ESGD, LABELS, OURS, POPULATION, SINGLE, TOP, WITHOUT_EVOLUTION
from esgd.studies.arms import arms, at_equal_work, single_baselines
from esgd.studies.soup import greedy_soup
from esgd.studies.study import BASELINE, Study

Histories = dict[str, dict[int, list[dict[str, Any]]]]


def compare(
    study: Study, *, seeds: Iterable[int], out: Path, engine: str | Engine = "auto", progress: bool = True
) -> tuple[dict[str, Any], Histories]:
    """The comparison as one JSON object, and the histories behind it; the runs are in `out/seed-S/ARM`.

    A comparison that was interrupted goes on where it stopped.
    """
    seeds = list(seeds)
    trials = [Trial(study, seed, out / f"seed-{seed}", engine, progress=progress) for seed in seeds]
    for trial in trials:
        trial.run()
    names = list(trials[0].entries)
    comparison = {
        "task": study.name,
        "about": study.about,
        "recipe": study.recipe.described(),
        **({"ours": study.ours.described()} if study.ours else {}),
        **({"published": study.published} if study.published else {}),
        "seeds": seeds,
        "arms": {arm: [trial.entries[arm] for trial in trials] for arm in names},
        "soup": [trial.soups[WITHOUT_EVOLUTION] for trial in trials],
        **({"population_soup": [trial.soups[POPULATION] for trial in trials]} if study.thorough else {}),
    }
    return comparison, {arm: {trial.seed: trial.histories[arm] for trial in trials} for arm in names}


@dataclass
class Trial:
    """All arms of one seed."""

    study: Study
    seed: int
    folder: Path
    engine: str | Engine
    progress: bool = field(kw_only=True)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    histories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    soups: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> None:
        study, task = self.study, self.study.task(self.seed)
        network = begin(study, task, seed=self.seed, folder=self.folder, engine=self.engine, progress=self.progress)
        self._single(task, network)
        for arm, recipe in arms(study).items():
            result = self._fit(task, arm, LABELS[arm], founded(recipe, network))
            self._enter(arm, result)
            if arm == POPULATION:
                last = result.population.best
                self.entries[arm]["last"] = {"fitness": last.fitness, "test": task.test(last.module())}
            if arm == WITHOUT_EVOLUTION or (study.thorough and arm == POPULATION):
                self._soup(arm, task, recipe, result)
        if study.thorough:
            champion = OURS if study.ours else ESGD
            ledgers = (self.entries[arm]["ledger"] for arm in (champion, POPULATION))
            recipe = founded(at_equal_work(study, *ledgers), network)
            self._enter(EQUAL_WORK, self._fit(task, EQUAL_WORK, LABELS[EQUAL_WORK], recipe))

    def _single(self, task: Task, network: Path | None) -> None:
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
        if self.progress:
            announce(f"seed {self.seed}, {title}")
        return fit(
            task,
            recipe,
            seed=self.seed,
            run=self.folder / name,
            engine=self.engine,
            progress=self.progress,
            report=False,
        )

    def _enter(self, arm: str, result: Result) -> None:
        history = result.history
        self.histories[arm] = history
        self.entries[arm] = {
            "seed": self.seed,
            "fitness": result.fitness,
            "top": _top(history),
            "test": result.test,
            "ledger": {name: sum(line["ledger"][name] for line in history) for name in history[-1]["ledger"]},
            "seconds": sum(sum(line["seconds"].values()) for line in history),
        }

    def _soup(self, arm: str, task: Task, recipe: Recipe, result: Result) -> None:
        soup = greedy_soup(
            task, result.population, elites=recipe.elite_count, buffers=recipe.buffers, engine=self.engine
        )
        self.soups[arm] = {
            "seed": self.seed,
            "fitness": soup.fitness,
            "test": task.test(soup.model),
            "models": soup.models,
        }


def begin(
    study: Study, task: Task, *, seed: int, folder: Path, engine: str | Engine, progress: bool = True
) -> Path | None:
    """Train what comes first, if the study has a baseline; returns the file of its network."""
    if study.baseline is None:
        return None
    if progress:
        announce(f"seed {seed}, the network that everybody begins with")
    fit(
        task,
        study.baseline,
        seed=seed,
        run=folder / BASELINE,
        engine=engine,
        progress=progress,
        report=False,
    )
    return folder / BASELINE / "model.safetensors"


def founded(recipe: Recipe, network: Path | None) -> Recipe:
    """The recipe with the trained network in the places that ask for the baseline."""
    if network is None:
        return recipe
    immigrants = tuple(network if each == BASELINE else each for each in recipe.immigrants)
    start = recipe.start
    if isinstance(start, Perturbed) and start.network == BASELINE:
        start = replace(start, network=network)
    return replace(recipe, start=start, immigrants=immigrants)


def _top(history: Sequence[dict[str, Any]]) -> list[float] | None:
    """The range of the top 15 in the generation that had the best individual; None for a population of one."""
    known = [line for line in history if line["best"] is not None]
    if not known or len(known[0]["fitness"]) == 1:
        return None
    lowest = min(line["best"] for line in known)
    line = next(line for line in reversed(known) if line["best"] == lowest)
    ranked = sorted(f for f in line["fitness"] if f is not None)[:TOP]
    return [ranked[0], ranked[-1]]
