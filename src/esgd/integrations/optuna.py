"""Optuna: a trial that is told of every generation, and that may end the run. The one file that imports optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from esgd.errors import MissingExtraError, RecipeError, StopRun, shown
from esgd.generation import Generation
from esgd.result import Result
from esgd.stopping import PLAIN, check_of, number_in

if TYPE_CHECKING:
    from optuna.trial import Trial

__all__ = ["PruneTrial"]


class PruneTrial:
    """A callback of `fit`: reports each generation to a trial of Optuna, and stops the run if the trial is pruned.

    The run ends as with any stop rule, with its folder complete. Then `fit` raises `optuna.TrialPruned`.

    `of` is the number to report, as in `Patience`: "best", the fitness, or for example "pick.loss" or "metrics.f1". One
    value may serve several runs, one after another, such as those of several seeds. Steps are then counted on, and what
    is reported is the mean of the current run and of the ends of those before it.

    ```python
    def objective(trial):
        recipe = esgd.Recipe(population=trial.suggest_int("population", 4, 32))
        return esgd.fit(task, recipe, seed=0, callbacks=[PruneTrial(trial)]).fitness
    ```
    """

    def __init__(self, trial: Trial, *, of: str = "best") -> None:
        _package()
        check_of(of)
        _check_study(trial, of)
        self.trial, self.of = trial, of
        self._ends, self._before, self._told, self._pruned = list[float](), 0, 0, ""

    @property
    def goes_by(self) -> str:
        """The number to report, which is checked before training."""
        return self.of

    def on_generation_end(self, generation: Generation) -> None:
        """Report, and ask whether to go on."""
        value = self._report(generation.state.history)
        if self.trial.should_prune():
            self._pruned = f"pruned by Optuna after generation {generation.k}: {self.of} {value:.6g}"
            raise StopRun(self._pruned)

    def on_run_end(self, result: Result) -> None:
        """A pruned run is raised as one; the end of another counts for the next."""
        if self._pruned:
            raise _package().TrialPruned(self._pruned)
        self._ends.append(self._report(result.history))
        self._before, self._told = self._before + len(result.history), 0

    def _report(self, history: Sequence[Mapping[str, Any]]) -> float:
        """Report the lines that this trial was not told of, also those that were saved before; the last value."""
        for line in history[self._told :]:
            value = number_in(line, self.of)
            values = [*self._ends, value if isfinite(value) else nan]  # pruners know NaN, whichever way is better
            self.trial.report(sum(values) / len(values), self._before + line["k"])
        self._told = len(history)
        return number_in(history[-1], self.of)

    def __str__(self) -> str:
        return f"PruneTrial(of={self.of!r})"


def _check_study(trial: Any, of: str) -> None:
    """Refuse studies whose pruners would be misled. A trial without a study, such as a `FixedTrial`, prunes nothing."""
    directions = [each.name for each in getattr(getattr(trial, "study", None), "directions", ())]
    if len(directions) > 1:
        raise RecipeError(
            f"this study has {len(directions)} objectives, and Optuna prunes trials of studies with one. Leave out "
            f"PruneTrial, or use one objective."
        )
    if directions == ["MAXIMIZE"] and of in PLAIN:
        raise RecipeError(
            f"this study maximises, and of={shown(of)} is better when it is lower. Use "
            f"optuna.create_study(direction='minimize'), or a metric that is better when it is higher, such as "
            f"of='metrics.accuracy'."
        )


def _package() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("optuna", "optuna", "Pruning a trial of Optuna") from error
    return optuna
