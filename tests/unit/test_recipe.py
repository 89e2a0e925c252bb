"""The inputs of Algorithm 1: what is accepted, what is refused and in which words, and how a recipe is written down."""

from __future__ import annotations

import json
import tomllib
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

import esgd
from esgd import FineTuning, Recipe
from esgd.errors import RecipeError
from esgd.operators import (
    BestOf,
    CarriedByMate,
    Elitist,
    FromFittest,
    Gaussian,
    PerEpoch,
    PerGeneration,
    Perturbed,
    Rank,
    trajectories,
)
from esgd.schedules import Tail
from esgd.species import Adam, Inherited, Integers, Mixture, Once, Sgd, Uniform
from tests.small import classify, mlp

FULL = Recipe(
    population=12,
    offspring=30,
    mates={1: 0.25, 2: 0.75},
    elites=5,
    generations=7,
    sgd_epochs=4,
    evolution_steps=2,
    species=Inherited(
        species=Mixture(
            species=(
                Sgd(lr=(0.03, 1.0), gamma=0.7, schedule=Tail(), settings={"batch_size": Integers(16, 64)}),
                Adam(lr=Uniform(1e-3, 3e-2), gamma=0.7, hyper={"weight_decay": Uniform(0, 1e-4)}, clip_norm=1.0),
            ),
            weights=(0.8, 0.2),
        )
    ),
    backoff=BestOf(average=3),
    mating=Rank(smoothing=0.5),
    mutation=Gaussian(sigma=(0.01, 0.15)),
    survival=Elitist(rest=trajectories),
    start=Perturbed(epochs=3),
    immigrants=("runs/base/model.safetensors",),
    fine_tuning=FineTuning(lr=1e-4, epochs=2, species=Once(species=Adam(lr=1e-4))),
    buffers=FromFittest(),
    baggage=CarriedByMate(),
    early_abort=False,
)


def through_toml(recipe: Recipe) -> Recipe:
    return Recipe.from_dict(tomllib.loads(tomli_w.dumps(recipe.to_dict())))


def test_a_recipe_in_which_everything_is_set_goes_through_toml_and_json() -> None:
    assert through_toml(FULL) == FULL
    assert Recipe.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


def test_what_is_written_is_resolved_so_the_default_comes_back_with_its_numbers() -> None:
    table = Recipe().to_dict()
    assert table["offspring"] == 64
    assert table["backoff"] == {"kind": "per_generation", "probability": 1.0}
    assert "fine_tuning" not in table
    assert through_toml(Recipe()) == Recipe(offspring=64)
    assert through_toml(Recipe()).to_dict() == table


@given(
    population=st.integers(2, 50),
    offspring=st.integers(0, 200),
    mates=st.sampled_from([1, 2, {1, 2}, [2, 1], {1: 0.3, 2: 0.7}]),
    elites=st.floats(0.01, 1.0) | st.just(1),
    backoff=st.sampled_from([PerEpoch(), PerEpoch(probability=0.7), PerGeneration(probability=0.5)]),
    generations=st.integers(1, 100),
    early_abort=st.booleans(),
)
def test_any_recipe_is_the_same_after_a_round_trip(**inputs: Any) -> None:
    assert through_toml(Recipe(**inputs)) == Recipe(**inputs)


def test_what_comes_back_from_toml_runs_the_same_generations() -> None:
    recipe = Recipe(population=3, generations=2, sgd_epochs=1, mates={1, 2})
    once, again = (list(esgd.evolve(classify(), each, seed=0)) for each in (recipe, through_toml(recipe)))
    assert [str(generation) for generation in once] == [str(generation) for generation in again]


def test_a_recipe_is_a_value() -> None:
    assert Recipe() == Recipe()
    assert Recipe(population=3) != Recipe(population=4)
    with pytest.raises(FrozenInstanceError):
        Recipe().population = 3  # type: ignore[misc]


# Elites, mates, offspring


@pytest.mark.parametrize(
    ("elites", "population", "m"),
    [(0.6, 16, 10), (1, 16, 1), (1.0, 16, 16), (16, 16, 16), (0.001, 16, 1), (0.5, 5, 2), (0.5, 7, 4), (3, 100, 3)],
)
def test_elites_are_a_count_or_a_fraction(elites: float, population: int, m: int) -> None:
    assert Recipe(elites=elites, population=population).elite_count == m


@pytest.mark.parametrize(
    ("mates", "weights"),
    [
        (2, {2: 1.0}),
        ({1, 2}, {1: 0.5, 2: 0.5}),
        ([1, 3], {1: 0.5, 3: 0.5}),
        (frozenset({2}), {2: 1.0}),
        ({1: 1, 2: 3}, {1: 1.0, 2: 3.0}),
        ({"1": 0.5, "2": 0.5}, {1: 0.5, 2: 0.5}),
    ],
)
def test_mates_are_a_number_a_set_or_weights(mates: Any, weights: dict[int, float]) -> None:
    assert Recipe(mates=mates).mate_weights == weights


def test_offspring_are_four_times_the_population_unless_given() -> None:
    assert Recipe(population=10).offspring_count == 40
    assert Recipe(population=10, offspring=3).offspring_count == 3
    assert Recipe(population=10, offspring=0).offspring_count == 0


# Stages


def test_the_stages_are_the_generations_and_the_fine_tuning() -> None:
    recipe = Recipe(generations=3, sgd_epochs=4, evolution_steps=2, fine_tuning=FineTuning(lr=1e-3, epochs=5))
    assert [
        (stage.k, stage.name, stage.before, stage.sgd_epochs, stage.evolution_steps) for stage in recipe.stages()
    ] == [
        (1, "evolution", 0, 4, 2),
        (2, "evolution", 4, 4, 2),
        (3, "evolution", 8, 4, 2),
        (4, "fine-tuning", 12, 5, 0),
    ]
    assert recipe.total_epochs == 17


def test_the_stages_can_be_taken_up_anywhere() -> None:
    recipe = Recipe(generations=3, fine_tuning=FineTuning(lr=1e-3))
    whole = list(recipe.stages())
    for done in range(5):
        assert list(recipe.stages(after=done)) == whole[done:]


def test_without_offspring_there_is_no_evolution_step_unless_immigrants_compete() -> None:
    assert {stage.evolution_steps for stage in Recipe(offspring=0).stages()} == {0}
    assert {stage.evolution_steps for stage in Recipe(offspring=0, immigrants=(mlp(),)).stages()} == {1}


# What is refused


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (
            {"elites": 120, "population": 100},
            "elites=120 exceeds population=100. Algorithm 1 keeps the m best of μ, so 1 ≤ elites ≤ population. "
            "Use elites=0.6 for the paper's 60%.",
        ),
        ({"elites": 0}, "elites=0 is no possible number of elites"),
        ({"elites": -3}, "elites=-3 is no possible number of elites"),
        ({"elites": 0.0}, "elites=0.0 is no possible number of elites"),
        ({"elites": 1.2}, "a count from 1 to 16, or a fraction in (0, 1]"),
        ({"elites": float("nan")}, "elites=nan is no possible number of elites"),
        ({"elites": "most"}, "elites='most' is neither a count nor a fraction of the population"),
        ({"elites": True}, "elites=True is neither a count"),
        ({"population": 0}, "population=0 is not a whole number ≥ 1. In Algorithm 1 μ networks are trained."),
        ({"population": 2.5}, "population=2.5 is not a whole number ≥ 1"),
        ({"population": "16"}, "population='16' is not a whole number"),
        ({"population": True}, "population=True is not a whole number"),
        ({"generations": 0}, "generations=0 is not a whole number ≥ 1. In Algorithm 1 the SGD and evolution steps"),
        ({"sgd_epochs": -1}, "sgd_epochs=-1 is not a whole number ≥ 0. In Algorithm 1 an SGD step has K_s epochs"),
        ({"evolution_steps": -1}, "evolution_steps=-1 is not a whole number ≥ 0"),
        ({"evolution_steps": 1.0}, "0 is the ablation"),
        ({"offspring": -4}, "offspring=-4 is not a whole number ≥ 0. In Algorithm 1 λ offspring are bred"),
        ({"offspring": 4.0}, "offspring=4.0 is not a whole number"),
        ({"sgd_epochs": 0, "evolution_steps": 0}, "sgd_epochs=0 without any offspring trains nothing"),
        ({"sgd_epochs": 0, "offspring": 0}, "Use sgd_epochs ≥ 1, or evolution_steps ≥ 1 and offspring ≥ 1"),
        ({"mates": 17}, "mates=17 does not fit population=16. An offspring has ρ distinct parents"),
        ({"mates": 0}, "mates=0 does not fit population=16"),
        ({"mates": {1, 20}}, "mates={1, 20} does not fit population=16"),
        ({"mates": set()}, "mates=set() does not fit"),
        ({"mates": {1: -1.0}}, "mates={1: -1.0} does not fit"),
        ({"mates": True}, "mates=True does not fit"),
        ({"mates": {1.5}}, "or a set such as {1, 2}."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_input_that_algorithm_1_cannot_run_with_is_refused(inputs: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe(**inputs)
    assert says in str(caught.value)


@pytest.mark.parametrize(("lr", "epochs"), [(-0.1, 5), (0.1, 0), (float("nan"), 5)])
def test_fine_tuning_that_cannot_be_is_refused(lr: float, epochs: int) -> None:
    with pytest.raises(RecipeError, match=f"epochs={epochs}, lr={lr}: .*Use fine_tuning=None for none"):
        FineTuning(lr=lr, epochs=epochs)


def test_a_misspelt_key_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="'popluation' is not an input of a recipe. Did you mean 'population'?"):
        Recipe.from_dict({"popluation": 4})
    with pytest.raises(RecipeError, match="kind='gausian' is not one of ours. Did you mean 'gaussian'"):
        Recipe.from_dict({"mutation": {"kind": "gausian"}})
    with pytest.raises(RecipeError, match="elites=9 exceeds population=3"):
        Recipe.from_dict({"population": 3, "elites": 9})


@pytest.mark.parametrize("mates", [2.0, None, {"two": 1.0}, {1: 0.0, 2: 0.0}, {1: float("nan")}], ids=str)
def test_mates_of_a_wrong_kind_are_refused_in_our_own_words(mates: Any) -> None:
    with pytest.raises(RecipeError, match="mates=.* does not fit population=16"):
        Recipe(mates=mates)


def test_a_population_of_one_is_told_to_have_one_mate() -> None:
    with pytest.raises(RecipeError, match="mates=2 does not fit population=1.*Use mates=1"):
        Recipe(population=1, evolution_steps=0)
    assert Recipe(population=1, mates=1, evolution_steps=0).elite_count == 1, "the single baseline"


@pytest.mark.parametrize(
    "inputs",
    [{"backoff": "epoch"}, {"mating": {"floor": 0.1}}, {"species": 0.1}, {"fine_tuning": {"lr": 1e-4}}],
    ids=str,
)
def test_a_strategy_of_a_wrong_kind_is_refused_at_construction(inputs: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        Recipe(**inputs)
