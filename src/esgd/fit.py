"""`fit()`: progress, a run folder and resume around `evolve()`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from esgd.algorithm import evolve
from esgd.beginning import prepare
from esgd.engines import choose
from esgd.engines.auto import Choice
from esgd.engines.choose import bits
from esgd.errors import EsgdError
from esgd.generation import State
from esgd.population import Population
from esgd.progress import Reporter, reporter
from esgd.protocols import Engine, Rules, Task
from esgd.recipe import Recipe
from esgd.report import write_run
from esgd.run import open_folder
from esgd.run.manifest import describe
from esgd.spelling import decode, encode


@dataclass(frozen=True, eq=False)
class Result:
    """What a run ends with.

    | attribute    | meaning                                                                              |
    |--------------|--------------------------------------------------------------------------------------|
    | `model`      | an ordinary `nn.Module` in eval mode: the fittest individual there ever was          |
    | `fitness`    | its fitness                                                                          |
    | `population` | the last generation                                                                  |
    | `history`    | a dict for every generation: the lines of `history.jsonl`                            |
    | `run`        | the run folder, if there is one                                                      |
    """

    state: State
    history: list[dict[str, Any]]
    run: Path | None = None

    @property
    def model(self) -> nn.Module:
        return self.state.archive.best.module()

    @property
    def fitness(self) -> float:
        return self.state.archive.best.fitness

    @property
    def population(self) -> Population:
        return self.state.population

    @property
    def test(self) -> dict[str, float]:
        """Metrics of the fittest on the split that selection never saw."""
        return dict(self.history[-1]["test"])

    def __repr__(self) -> str:
        where = f", run={str(self.run)!r}" if self.run else ""
        return f"Result(fitness={self.fitness:.6g}, generations={len(self.history)}{where})"


def fit(
    task: Task,
    recipe: Recipe | None = None,
    *,
    seed: int,
    run: str | Path | None = None,
    engine: str | Engine = "auto",
    progress: bool = True,
    origin: str = "",
    report: bool = True,
) -> Result:
    """Evolve a population to the end and return the fittest network.

    With `run`, every generation is saved in that folder. Called again with the same folder, recipe, seed and data it
    goes on where it stopped, and the result is the same, bit for bit, as if it never had; a folder of another run is
    refused.
    At the end `report.html` is written there, unless `report` is False. `origin` is what `esgd resume` finds the task
    by: a built-in, a TOML file or "package.module:task".
    """
    recipe = recipe or Recipe()
    rules = prepare(task, recipe, seed)
    seed = rules.seeds.root
    choose(engine, rules)  # what is no engine is refused before there is a folder
    with open_folder(run) as folder:
        choice = _choice(engine, folder.manifest(), rules, recipe)
        folder.claim(_manifest(recipe, seed, choice, rules, origin))
        state, damaged = folder.latest(rules.genome)
        del rules  # evolve() has its own, and a frozen base need not be there twice
        done = state.k if state else 0
        with reporter(shown=progress, generations=recipe.stage_count, done=done) as reports:
            for problem in damaged:
                reports.say(f"{problem} Going on from generation {done}.")
            if state:
                reports.say(f"{folder.path}: {done} of {recipe.stage_count} generations are there already.")
            try:
                if done < recipe.stage_count:
                    if choice.why:
                        reports.say(choice.why)
                    generations = evolve(task, recipe, seed=seed, engine=choice.engine, start=state, tick=reports.tick)
                    state = None  # while a generation is made, nobody holds the one before
                    for generation in generations:
                        saved = folder.save(generation.state)
                        reports.generation(generation)
                        done, state = saved.k, saved if saved.k == recipe.stage_count else None
                        del generation, saved
            except KeyboardInterrupt:
                reports.say(_farewell(done, folder.path, origin))
                raise
            if folder.path is not None and report:
                _write_report(folder.path, reports)
    assert state is not None, "a recipe has at least one generation"
    return Result(state, list(state.history), folder.path)


def _choice(engine: str | Engine, manifest: Mapping[str, Any] | None, rules: Rules, recipe: Recipe) -> Choice:
    """The engine to use; a run that chose for itself goes on with what it began with."""
    if manifest is not None and isinstance(engine, str) and engine.startswith("auto"):
        return Choice(decode(manifest["engine"]), "")
    choice = choose(engine, rules, recipe.load)
    if manifest is not None and encode(choice.engine) != manifest["engine"]:
        began = decode(manifest["engine"])
        same = "The bits are the same." if bits(choice.engine) == bits(began) else "The last bits may differ."
        return replace(choice, why=f"engine: {choice.engine}; this run began with {began}. {same}")
    return choice


def _farewell(done: int, path: Path | None, origin: str) -> str:
    if path is None:
        return "Stopped. Nothing was saved, because no run folder was given (run=…)."
    how = f"esgd resume {path}" if origin else "run the same again"
    return f"Stopped. {done} generations are saved in {path}. To go on: {how}"


def _write_report(path: Path, reports: Reporter) -> None:
    try:
        reports.say(f"report: {write_run(path)}")
    except (EsgdError, OSError) as error:  # the run itself is safe
        reports.say(f"No report: {error}")


def _manifest(recipe: Recipe, seed: int, choice: Choice, rules: Rules, origin: str) -> dict[str, Any]:
    genome = rules.genome
    shapes = {name: list(shape) for name, shape in zip(genome.names, genome.shapes, strict=True)}
    return describe(
        recipe=recipe.described(),
        seed=seed,
        engine=encode(choice.engine),
        why=choice.why,
        data=rules.task.describe(),
        network={"layers": repr(genome.template), "parameters": shapes},
        origin=origin,
    )
