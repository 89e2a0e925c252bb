"""Trials of Optuna that are populations: what is reported, and what a pruned one leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

import esgd
from esgd.errors import RecipeError
from esgd.integrations.optuna import PruneTrial
from tests.small import classify, mlp

RECIPE = esgd.Recipe(population=2, offspring=2, generations=3, sgd_epochs=1)
optuna.logging.set_verbosity(optuna.logging.WARNING)


def fit(trial: optuna.Trial, seed: int = 0, **settings: Any) -> esgd.Result:
    callbacks = [settings.pop("callback", None) or PruneTrial(trial)]
    return esgd.fit(classify(mlp), RECIPE, seed=seed, engine="loop", progress=False, callbacks=callbacks, **settings)


def study(after: int | None = None) -> optuna.Study:
    """A study that prunes every trial after so many generations, or none."""

    class Impatient(optuna.pruners.BasePruner):
        def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
            return after is not None and (trial.last_step or 0) >= after

    return optuna.create_study(pruner=Impatient())


def test_a_trial_is_told_of_every_generation() -> None:
    found = study()
    found.optimize(lambda trial: fit(trial).fitness, n_trials=1)
    told = found.trials[0].intermediate_values
    assert list(told) == [1, 2, 3]
    assert told[3] == found.best_value


@pytest.mark.slow
def test_a_pruned_run_is_whole_in_its_folder_and_pruned_in_its_study(tmp_path: Path) -> None:
    found = study(after=2)
    found.optimize(lambda trial: fit(trial, run=tmp_path / "run", report=False).fitness, n_trials=1)
    assert found.trials[0].state is optuna.trial.TrialState.PRUNED
    assert len(esgd.load(tmp_path / "run", mlp).history) == 2
    assert "pruned by Optuna after generation 2" in (tmp_path / "run" / "stop.json").read_text()


def test_a_trial_is_told_of_the_generations_that_were_saved_before(tmp_path: Path) -> None:
    def objective(trial: optuna.Trial) -> float:
        stop = (lambda generation: generation.k == 2) if trial.number == 0 else None
        return fit(trial, run=tmp_path / "run", report=False, stop=stop).fitness

    found = study()
    found.optimize(objective, n_trials=3)  # stopped, resumed, and already finished
    assert [list(trial.intermediate_values) for trial in found.trials] == [[1, 2], [1, 2, 3], [1, 2, 3]]
    assert found.trials[1].intermediate_values == found.trials[2].intermediate_values


def test_the_runs_of_several_seeds_are_one_trial() -> None:
    def objective(trial: optuna.Trial) -> float:
        callback = PruneTrial(trial)
        return sum(fit(trial, seed, callback=callback).fitness for seed in (0, 1)) / 2

    found = study()
    found.optimize(objective, n_trials=1)
    told = found.trials[0].intermediate_values
    assert list(told) == [1, 2, 3, 4, 5, 6]
    assert told[6] == pytest.approx(found.best_value)


def test_a_number_that_the_run_will_not_have_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esgd._fit.training.generations", lambda *_: pytest.fail("a generation was begun"))
    trial = study().ask()
    with pytest.raises(RecipeError, match=r"PruneTrial\(of='metrics.f1'\) goes by 'metrics.f1', and a network"):
        fit(trial, callback=PruneTrial(trial, of="metrics.f1"))


def test_a_pruner_that_would_be_misled_is_refused() -> None:
    maximised = optuna.create_study(direction="maximize")
    with pytest.raises(RecipeError, match="this study maximises, and of='best' is better when it is lower"):
        PruneTrial(maximised.ask())
    with pytest.raises(RecipeError, match="this study has 2 objectives"):
        PruneTrial(optuna.create_study(directions=["minimize", "minimize"]).ask())
    with pytest.raises(RecipeError, match="Did you mean 'best'"):
        PruneTrial(study().ask(), of="besst")
    assert str(PruneTrial(maximised.ask(), of="metrics.f1")) == "PruneTrial(of='metrics.f1')"
