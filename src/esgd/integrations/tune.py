"""Ray Tune: a run as a trial, and search spaces as species. The one file here that imports ray.

A trial of Tune is one network, as a rule. Here it is a population. What Tune's `PopulationBasedTraining` does between
trials, `esgd.rules.pbt` does inside one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from esgd.errors import MissingExtraError, RecipeError, TaskError, shown
from esgd.fit import fit
from esgd.generation import Generation
from esgd.integrations.curves import curves
from esgd.protocols import Engine, Task
from esgd.recipe import Recipe
from esgd.species import Choice, Integers, LogUniform, Optimizer, Uniform

__all__ = ["ReportGeneration", "species", "trainable"]

Config = dict[str, Any]
Build = Callable[[Config], Task | tuple[Task, Recipe]]


def trainable(
    build: Build, *, seed: int = 0, engine: str | Engine = "loop:threads=1", every: int = 1
) -> Callable[[Config], None]:
    """A function for `tune.Tuner`: each trial trains a population and reports its generations.

    `build` makes a task, or a task and a recipe, of a trial's config. A config with a "seed" has that seed. Every
    `every`th generation is reported with its run folder as checkpoint: a trial that Tune starts again after a failure
    or a pause continues from there, bit-identically. `engine` is for one core, because Tune gives trials cores.

    Reported are `fitness`, lower is better, `generation`, and the curves that trackers get. Schedulers that stop trials
    suit it, such as ASHA. Those that give a trial another's checkpoint do not: the folder is that of another run, and
    is refused.
    """
    _package()

    def population(config: Config) -> None:
        package = _package()
        task, recipe = _built(build(config))
        begun = package.get_checkpoint()
        with TemporaryDirectory() as place:
            folder = Path(place) / "run"
            if begun is not None:
                begun.to_directory(folder)
            fit(
                task,
                recipe,
                seed=config.get("seed", seed),
                run=folder,
                engine=engine,
                progress=False,
                report=False,
                callbacks=[ReportGeneration(folder, every=every)],
            )

    return population


class ReportGeneration:
    """A callback of `fit`: reports each generation to Ray Tune, with the run folder as checkpoint if there is one."""

    def __init__(
        self, folder: str | Path | None = None, *, every: int = 1, report: Callable[..., None] | None = None
    ) -> None:
        self.folder, self.every = folder, every
        self._report = report or _package().report

    def on_generation_end(self, generation: Generation) -> None:
        """It is saved by now, so the folder is whole."""
        line = generation.state.history[-1]
        numbers = {"fitness": line["best"], "generation": generation.k, **curves(line)}
        kept = self.folder is not None and generation.k % self.every == 0
        checkpoint = _package().Checkpoint.from_directory(str(self.folder)) if kept else None
        self._report(numbers, checkpoint=checkpoint)


def species(optimizer: str, space: Mapping[str, Any]) -> Optimizer:
    """The species that draws from a search space of Ray Tune, such as PBT's `hyperparam_mutations`.

    `optimizer` is a class of `torch.optim` in lower case. `space` has "lr" and other keywords of that class, each a
    value, a list to choose from, `tune.uniform`, `tune.loguniform`, `tune.choice` or `tune.randint`.
    """
    _package()
    if "lr" not in space:
        raise RecipeError(f"the space has {sorted(space)} and no 'lr'. Every optimizer has a learning rate: give one.")
    drawn = {name: _distribution(name, value) for name, value in space.items()}
    return Optimizer(name=optimizer, lr=drawn.pop("lr"), gamma=1.0, hyper=drawn)


def _distribution(name: str, value: Any) -> Any:
    """One of our distributions for a domain of Tune; any other value is used as it is."""
    from ray.tune.search import sample

    if isinstance(value, list):
        return Choice(tuple(value))
    if not isinstance(value, sample.Domain) and not callable(value):
        return value
    match value, getattr(value, "sampler", None):
        case sample.Categorical(), _:
            return Choice(tuple(value.categories))
        case sample.Float(), sample.LogUniform():
            return LogUniform(value.lower, value.upper)
        case sample.Float(), None | sample.Uniform():
            return Uniform(value.lower, value.upper)
        case sample.Integer(), None | sample.Uniform():
            return Integers(value.lower, value.upper - 1)  # Tune leaves the upper end out
    raise RecipeError(
        f"{name}={shown(value)} of the space has no distribution of ours. Use tune.uniform, tune.loguniform, "
        f"tune.choice or tune.randint, or a distribution of esgd.species."
    )


def _built(made: Any) -> tuple[Task, Recipe | None]:
    task, recipe = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if isinstance(task, Task) and isinstance(recipe, Recipe | None):
        return task, recipe
    raise TaskError(f"build returned {shown(made)}. It returns a task, or a task and a recipe: return task, recipe.")


def _package() -> Any:
    try:
        from ray import tune
    except ImportError as error:
        raise MissingExtraError("Ray Tune", "tune", "A run as a trial of Ray Tune") from error
    return tune
