"""`fit()`: progress, a run folder and resume around `evolve()`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from esgd import report
from esgd.algorithm import evolve
from esgd.beginning import prepare
from esgd.engines import choose
from esgd.errors import MissingExtraError, RecipeError
from esgd.generation import State
from esgd.population import Population
from esgd.progress import Reporter, reporter
from esgd.protocols import Engine, Rules, Task
from esgd.recipe import Recipe
from esgd.run import RunFolder, read_history
from esgd.run.manifest import describe
from esgd.spelling import decode, encode


@dataclass(frozen=True, eq=False)
class Result:
    """What a run ends with.

    | attribute    | meaning                                                                              |
    |--------------|--------------------------------------------------------------------------------------|
    | `model`      | an ordinary `nn.Module` in eval mode: the fittest individual there ever was          |
    | `fitness`    | its fitness                                                                          |
    | `population` | the last generation, elites first                                                    |
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
) -> Result:
    """Evolve a population to the end and return the fittest network.

    With `run`, every generation is saved in that folder. Called again with the same folder, recipe, seed and data it
    goes on where it stopped, and the result is the same, bit for bit, as if it never had; a folder of another run is
    refused.
    `origin` is what `esgd resume` finds the task by: a built-in, a TOML file or "package.module:task".
    """
    recipe = recipe or Recipe()
    rules = prepare(task, recipe, seed)
    if run is None:
        return _without_folder(task, recipe, seed, choose(engine, rules.genome.size), shown=progress)
    with RunFolder(Path(run)).locked() as folder:
        manifest = folder.claim(_manifest(recipe, seed, choose(engine, rules.genome.size), rules, origin))
        begun_with = decode(manifest["engine"]) if engine == "auto" else choose(engine, rules.genome.size)
        return _with_folder(task, recipe, seed, begun_with, folder, rules, origin, shown=progress)


def _without_folder(task: Task, recipe: Recipe, seed: int, engine: Engine, *, shown: bool) -> Result:
    state: State | None = None
    with reporter(shown=shown, generations=recipe.stage_count) as reports:
        for generation in evolve(task, recipe, seed=seed, engine=engine, tick=reports.tick):
            reports.generation(generation)
            state = generation.state
    assert state is not None, "a recipe has at least one generation"
    return Result(state, list(state.history))


def _with_folder(
    task: Task, recipe: Recipe, seed: int, engine: Engine, folder: RunFolder, rules: Rules, origin: str, *, shown: bool
) -> Result:
    state, damaged = folder.latest(rules.genome)
    done = state.k if state else 0
    with reporter(shown=shown, generations=recipe.stage_count, done=done) as reports:
        for problem in damaged:
            reports.say(f"{problem} Going on from generation {done}.")
        if state:
            reports.say(f"{folder.path}: {done} of {recipe.stage_count} generations are there already.")
        try:
            if done < recipe.stage_count:
                for generation in evolve(task, recipe, seed=seed, engine=engine, start=state, tick=reports.tick):
                    folder.save(generation.state)
                    reports.generation(generation)
                    state = generation.state
        except KeyboardInterrupt:
            how = f"esgd resume {folder.path}" if origin else "call fit() again with the same arguments"
            reports.say(f"Stopped. {state.k if state else 0} generations are saved. To go on: {how}")
            raise
        assert state is not None, "a recipe has at least one generation"
        _write_report(folder, reports)
    return Result(state, read_history(folder.history_file), folder.path)


def _write_report(folder: RunFolder, reports: Reporter) -> None:
    try:
        reports.say(f"report: {report.write_run(folder.path)}")
    except MissingExtraError as error:
        reports.say(f"No report: {error}")


def _manifest(recipe: Recipe, seed: int, engine: Engine, rules: Rules, origin: str) -> dict[str, Any]:
    genome = rules.genome
    layout = {name: list(shape) for name, shape in zip(genome.names, genome.shapes, strict=True)}
    return describe(
        recipe=_spelt(recipe),
        seed=seed,
        engine=encode(engine),
        data=rules.task.describe(),
        network=layout,
        origin=origin,
    )


def _spelt(recipe: Recipe) -> dict[str, Any]:
    """The recipe as tables; a strategy without an importable name, a lambda say, is only named."""
    table: dict[str, Any] = {}
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        try:
            table[field.name] = encode(value)
        except RecipeError:
            table[field.name] = f"not importable: {getattr(value, '__qualname__', type(value).__qualname__)}"
    return {name: value for name, value in table.items() if value is not None} | {"offspring": recipe.offspring_count}
