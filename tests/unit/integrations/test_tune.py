"""Trials of Ray Tune that are populations. Its spaces and reports are tested without a cluster; one test starts one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune

import esgd
from esgd.errors import RecipeError, TaskError
from esgd.integrations.tune import ReportGeneration, species, trainable
from esgd.species import Choice, Integers, LogUniform, Optimizer, Uniform
from tests.small import classify, mlp

RECIPE = esgd.Recipe(population=2, offspring=2, generations=3, sgd_epochs=1)


def build(config: dict[str, Any]) -> tuple[esgd.Supervised, esgd.Recipe]:
    return classify(mlp), RECIPE


def test_each_generation_is_reported_and_every_second_with_its_folder(tmp_path: Path) -> None:
    told = list[tuple[dict[str, Any], int | None]]()

    def report(numbers: dict[str, Any], *, checkpoint: Any) -> None:
        done = checkpoint and len((Path(checkpoint.path) / "history.jsonl").read_text().splitlines())
        told.append((numbers, done))

    result = esgd.fit(
        *build({}),
        seed=0,
        run=tmp_path / "run",
        engine="loop",
        progress=False,
        report=False,
        callbacks=[ReportGeneration(tmp_path / "run", every=2, report=report)],
    )
    assert [done for _, done in told] == [None, 2, None]
    assert [numbers["fitness"] for numbers, _ in told] == [line["best"] for line in result.history]


class Session:
    """What Tune is to a trial, without a cluster: it copies checkpoints, and may lose the trial after a generation."""

    Checkpoint = tune.Checkpoint

    def __init__(self, place: Path, lost_after: int) -> None:
        self.place, self.lost_after, self.kept = place, lost_after, None
        self.told = list[dict[str, Any]]()

    def get_checkpoint(self) -> Any:
        return self.kept

    def report(self, numbers: dict[str, Any], *, checkpoint: Any) -> None:
        self.told.append(numbers)
        self.kept = tune.Checkpoint.from_directory(checkpoint.to_directory(self.place / str(len(self.told))))
        if len(self.told) == self.lost_after:
            raise SystemExit


def test_a_trial_that_is_started_again_continues_bit_identically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(tmp_path, lost_after=2)
    monkeypatch.setattr("esgd.integrations.tune._package", lambda: session)
    with pytest.raises(SystemExit):
        trainable(build, engine="loop")({"seed": 3})
    trainable(build, engine="loop")({"seed": 3})
    assert [numbers["generation"] for numbers in session.told] == [1, 2, 3]
    alone = esgd.fit(*build({}), seed=3, engine="loop", progress=False)
    assert [numbers["fitness"] for numbers in session.told] == [line["best"] for line in alone.history]


def test_a_space_of_tune_is_a_species() -> None:
    space = {
        "lr": tune.loguniform(1e-4, 1e-1),
        "momentum": tune.uniform(0.1, 0.9),
        "weight_decay": tune.choice([0.0, 1e-4]),
        "nesterov": [True, False],
        "foreach": tune.randint(0, 2),
        "dampening": 0,
    }
    assert species("sgd", space) == Optimizer(
        name="sgd",
        lr=LogUniform(1e-4, 1e-1),
        gamma=1.0,
        hyper={
            "momentum": Uniform(0.1, 0.9),
            "weight_decay": Choice((0.0, 1e-4)),
            "nesterov": Choice((True, False)),
            "foreach": Integers(0, 1),
            "dampening": 0,
        },
    )


@pytest.mark.parametrize("domain", [tune.randn(0, 1), tune.quniform(0, 1, 0.1), lambda: 0.1])
def test_a_domain_without_a_distribution_is_refused(domain: Any) -> None:
    with pytest.raises(RecipeError, match="lr=.* of the space has no distribution of ours"):
        species("sgd", {"lr": domain})


def test_what_is_built_wrong_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(TaskError, match="It returns a task, or a task and a recipe"):
        trainable(lambda config: (classify(mlp), 3))({})
