"""The comparison: what is the same in every arm, what differs, and what is reported."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import esgd
from esgd._serialization import digest
from esgd.errors import RunError
from esgd.operators import Never, PerEpoch, Perturbed
from esgd.recipe import FineTuning
from esgd.report.arms import BASELINE
from esgd.run import RunFolder
from esgd.species import Adam, Fixed, Once, Sgd
from esgd.studies import Study, arms, compare
from esgd.studies.arms import population_baseline, single_baselines
from esgd.studies.compare import founded
from tests.small import classify, random_data

RECIPE = esgd.Recipe(population=3, offspring=6, elites=2, generations=2, sgd_epochs=2, species=Sgd(lr=(0.05, 0.2)))
SINGLES = tuple(Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": lr})) for lr in (1e-6, 0.1))


def study(**changes: Any) -> Study:
    task = classify(test=random_data(30, seed=2))
    return Study(name="noise", about="Noise.", task=lambda seed: task, recipe=RECIPE, **changes)


@pytest.mark.slow
def test_a_plain_study_has_the_papers_four_arms_in_its_order(tmp_path: Path) -> None:
    comparison, histories = compare(study(), seeds=[0, 3], out=tmp_path, engine="loop", progress=False)
    assert list(comparison["arms"]) == list(histories) == ["single", "population", "no_evolution", "esgd"]
    assert [entry["seed"] for entry in comparison["arms"]["esgd"]] == [0, 3]
    assert len(comparison["soup"]) == 2
    ledgers = {arm: entries[0]["ledger"] for arm, entries in comparison["arms"].items()}
    same = {ledgers[arm]["sgd_backward"] for arm in ("population", "no_evolution", "esgd")}
    assert len(same) == 1, "every individual has the same SGD epochs"
    ablation = comparison["arms"]["no_evolution"]
    assert comparison["soup"][0]["fitness"] <= ablation[0]["fitness"], "a soup begins with the best"


@pytest.mark.slow
def test_the_single_baseline_is_the_fittest_of_its_grid(tmp_path: Path) -> None:
    comparison, _ = compare(study(single=SINGLES), seeds=[0], out=tmp_path, engine="loop", progress=False)
    (entry,) = comparison["arms"]["single"]
    assert entry["chosen"]["of"] == 2
    assert entry["fitness"] == min(entry["chosen"]["fitness"])
    assert entry["chosen"]["fitness"][0] > entry["chosen"]["fitness"][1], "a rate of 1e-6 learns nothing"


def test_all_arms_of_a_seed_begin_with_the_same_population() -> None:
    recipes = [*arms(study()).values(), *single_baselines(study())]
    assert {recipe.start for recipe in recipes} == {RECIPE.start}


def test_baselines_train_as_long_as_esgd_with_its_fine_tuning() -> None:
    tuned = replace(RECIPE, sgd_epochs=1, backoff=PerEpoch(), fine_tuning=FineTuning(lr=0.01, epochs=3))
    population = population_baseline(replace(study(), recipe=tuned))
    assert population.total_epochs == tuned.total_epochs == 5
    assert population.fine_tuning is None
    assert population.backoff == Never()


def test_the_population_baseline_may_have_a_pool_of_its_own() -> None:
    pool = Adam(lr=1e-3)
    assert population_baseline(study(population=pool)).species == Once(species=pool)
    assert population_baseline(study()).species == Once(species=RECIPE.species)


@pytest.mark.slow
def test_a_baseline_comes_first_and_everybody_begins_with_it(tmp_path: Path) -> None:
    recipe = replace(RECIPE, start=Perturbed(network=BASELINE, sigma=0.1), immigrants=(BASELINE,))
    first = replace(RECIPE, population=1, offspring=0, elites=1, mates=1, evolution_steps=0, generations=1)
    comparison, _ = compare(
        replace(study(), recipe=recipe, baseline=first), seeds=[1], out=tmp_path, engine="loop", progress=False
    )
    assert set(comparison["arms"]) == {BASELINE, "single", "population", "no_evolution", "esgd"}
    network = f"network in memory, sha256 {digest(load_file(tmp_path / 'seed-1' / BASELINE / 'model.safetensors'))}"
    for arm in set(comparison["arms"]) - {BASELINE}:
        manifest = RunFolder(tmp_path / "seed-1" / arm).manifest()
        assert manifest is not None
        assert manifest["recipe"]["start"]["network"] == network
    assert RunFolder(tmp_path / "seed-1" / "esgd").manifest()["recipe"]["immigrants"] == [network]  # type: ignore[index]


def test_without_a_baseline_a_recipe_is_left_as_it_is() -> None:
    assert founded(RECIPE, None) is RECIPE


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["esgd.studies.compare"]  # the package has a function of that name
    whole, _ = compare(study(), seeds=[0], out=tmp_path / "whole", engine="loop", progress=False)
    real, trained = module.fit, []

    def fit(task: Any, recipe: Any, **rest: Any) -> Any:
        trained.append(rest["run"].name)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return real(task, recipe, **rest)

    monkeypatch.setattr(module, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        compare(study(), seeds=[0], out=tmp_path / "cut", engine="loop", progress=False)
    resumed, _ = compare(study(), seeds=[0], out=tmp_path / "cut", engine="loop", progress=False)
    for arm, (entry,) in whole["arms"].items():
        assert resumed["arms"][arm][0]["fitness"] == entry["fitness"]


@pytest.mark.parametrize("place", ["seed-0", "seed-0/esgd"])
def test_a_link_among_the_runs_of_a_comparison_is_refused(tmp_path: Path, place: str) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "out" / place
    elsewhere.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(RunError, match=f"{place}' is a link"):
        compare(study(), seeds=[0], out=tmp_path / "out", engine="loop", progress=False)
    assert not list(elsewhere.iterdir())
