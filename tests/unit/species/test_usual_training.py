"""Warm-up, accumulated gradients, parameter groups, label smoothing and mixup in one recipe: exact however it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import esgd
from esgd import Loop, Pool
from esgd.operators import BestOfLooks, CarriedByMate
from esgd.schedules import CosineRun
from esgd.species import Choice, Mixture, Optimizer, Sgd, Uniform
from esgd.testing.evidence import contents, difference
from tests.small import batchnorm_mlp, classify, random_data

SETTINGS = {"label_smoothing": Uniform(0.0, 0.2), "mixup": Choice((0.0, 0.3))}
COMMON: dict[str, Any] = {"schedule": CosineRun(warmup=0.2), "accumulate": Choice((1, 2)), "settings": SETTINGS}
RECIPE = esgd.Recipe(
    population=4,
    offspring=6,
    generations=3,
    sgd_epochs=1.5,
    baggage=CarriedByMate(),
    backoff=BestOfLooks(looks=(0.4,), ema=1.0),
    species=Mixture(
        species=(
            Optimizer(name="adamw", lr=(1e-3, 1e-2), hyper={"weight_decay": 0.1}, groups="no_decay", **COMMON),
            Sgd(lr=(0.01, 0.1), groups={"3.*": {"lr_factor": 0.5}, "*.bias": {"weight_decay": 0.1}}, **COMMON),
        )
    ),
)


def task() -> esgd.Supervised:
    return classify(batchnorm_mlp, train=random_data(90))


def test_a_resumed_run_is_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    def fit(folder: str, **how: Any) -> esgd.Result:
        return esgd.fit(
            task(), RECIPE, seed=3, run=tmp_path / folder, engine=Loop(threads=1), progress=False, report=False, **how
        )

    whole = fit("whole")
    fit("stopped", stop=lambda generation: generation.k == 1)
    resumed = fit("stopped")
    assert len(resumed.history) == 3
    assert difference(contents(resumed.population), contents(whole.population)) == ""
    policies = whole.population.policies
    assert {policy.accumulate for policy in policies if policy} <= {1, 2}
    assert all(policy is None or policy.groups for policy in policies)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_workers_change_no_bit() -> None:
    one, two = (
        [contents(each.population) for each in esgd.evolve(task(), RECIPE, seed=3, engine=engine)]
        for engine in (Loop(threads=1), Pool(inner=Loop(threads=1), workers=2))
    )
    assert difference(one, two) == ""
