"""The library equals Algorithm 1 written naively: bit for bit, generation by generation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.operators import (
    BestOfLooks,
    Carried,
    Cloned,
    Elitist,
    Extrapolated,
    GreedySoup,
    Mated,
    MeanOfElites,
    PerEpoch,
    Uninterrupted,
)
from tests.funnel import FUNNEL
from tests.oracle.naive_esgd import Individual, Naive
from tests.oracle.naive_funnel import NaiveFunnel
from tests.small import CLASSES, INPUTS, batchnorm_mlp, dropout_mlp, mlp, random_data

TRAIN, FITNESS = random_data(200), random_data(150, seed=1)
SMALL = {"population": 6, "generations": 3}


def wide() -> nn.Module:
    """Odd sizes, so that the tensors of an individual lie at odd places of its row."""
    layers = (nn.Linear(INPUTS, 65), nn.ReLU(), nn.Linear(65, 63), nn.ReLU(), nn.Linear(63, CLASSES))
    return nn.Sequential(*layers)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The library takes one thread for networks this small; sums of a matrix product may depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# What the library is told, and what the page is told.
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "back-off per epoch": (mlp, {"backoff": PerEpoch()}, {"per_epoch": True}),
    "two evolution steps": (mlp, {"evolution_steps": 2}, {"evolution_steps": 2}),
    "no evolution": (mlp, {"evolution_steps": 0}, {"evolution_steps": 0}),
    "one mate": (mlp, {"mates": 1}, {"mates": (1,)}),
    "one or two mates": (mlp, {"mates": {1, 2}}, {"mates": (1, 2)}),
    "three mates": (mlp, {"mates": 3}, {"mates": (3,)}),
    "BatchNorm": (batchnorm_mlp, {}, {}),
    "BatchNorm, back-off per epoch": (batchnorm_mlp, {"backoff": PerEpoch()}, {"per_epoch": True}),
    "dropout": (dropout_mlp, {}, {}),
    "odd sizes": (wide, {}, {}),
    "everything at once": (
        batchnorm_mlp,
        {"backoff": PerEpoch(), "evolution_steps": 2, "mates": {1, 2}, "sgd_epochs": 2},
        {"per_epoch": True, "evolution_steps": 2, "mates": (1, 2), "sgd_epochs": 2},
    ),
}


@pytest.mark.parametrize(("case", "seed"), [*((case, 0) for case in CASES), ("everything at once", 2018)])
def test_the_library_equals_algorithm_1_written_naively(case: str, seed: int) -> None:
    make_model, told, changes = CASES[case]
    naive = Naive(make_model, TRAIN, FITNESS, seed, mu=6, generations=3, **changes)
    task = esgd.Supervised(make_model, F.cross_entropy, train=TRAIN, fitness=FITNESS)
    generations = esgd.evolve(task, esgd.Recipe(**SMALL, **told), seed=seed)
    for generation, population in zip(generations, naive.run(), strict=True):
        assert_equal(generation, population, naive)


@pytest.mark.slow
def test_the_default_recipe_equals_it_and_both_do_something() -> None:
    train = random_data(64)
    naive = Naive(mlp, train, FITNESS, seed=0)
    task = esgd.Supervised(mlp, F.cross_entropy, train=train, fitness=FITNESS)
    seen = []
    for generation, population in zip(esgd.evolve(task, esgd.Recipe(), seed=0), naive.run(), strict=True):
        assert_equal(generation, population, naive)
        seen.append(generation)
    assert len(seen) == 10
    assert {policy.optimizer for policy in seen[0].policies} == {"sgd", "adam"}
    assert any(0 < generation.backed_off < 16 for generation in seen), "nothing was compared about back-off"
    assert any(0 < generation.offspring_among_elites < 1 for generation in seen), "nothing was compared about survival"


def assert_equal(generation: esgd.Generation, population: list[Individual], naive: Naive) -> None:
    ours = generation.population
    assert torch.equal(ours.rows, torch.stack([each.row for each in population]))
    assert ours.fitness.tolist() == [each.fitness for each in population]
    assert [birth.id for birth in ours.births] == [each.name for each in population]
    assert [birth.parents for birth in ours.births] == [each.parents for each in population]
    assert [flat(policy) for policy in generation.policies] == naive.drawn
    assert [flat(policy) for policy in ours.policies] == [each.policy for each in population]
    assert generation.backed_off == naive.refused
    for name in dict(population[0].module.named_buffers()):
        assert torch.equal(ours.buffers[name], torch.stack([each.module.get_buffer(name) for each in population]))


def flat(policy: esgd.Policy | None) -> dict[str, Any] | None:
    return None if policy is None else {"optimizer": policy.optimizer, **policy.hyper}


@pytest.mark.slow
@pytest.mark.parametrize(("uninterrupted", "seed"), [(True, 0), (False, 2018)])
def test_the_library_equals_a_funnel_written_naively(uninterrupted: bool, seed: int) -> None:
    """Sizes, looks, late means, SGD without interruption, ends as mates and survivors, means and soups as offspring."""
    baggage = Uninterrupted() if uninterrupted else Carried()
    recipe = replace(FUNNEL, species=esgd.Recipe().species, baggage=baggage)
    naive = NaiveFunnel(mlp, TRAIN, FITNESS, seed, uninterrupted=uninterrupted)
    _, went_on = assert_equal_funnels(recipe, naive, uninterrupted=uninterrupted)
    assert went_on, "nothing was compared about trajectories that go on"


@pytest.mark.slow
def test_the_library_equals_sgd_that_returns_and_begins_smaller_written_naively() -> None:
    recipe = replace(FUNNEL, species=esgd.Recipe().species, baggage=Uninterrupted(returns=True, shrink=0.3))
    naive = NaiveFunnel(mlp, TRAIN, FITNESS, 4, returns=True, shrink=0.3)
    assert_equal_funnels(recipe, naive, uninterrupted=True)
    assert naive.begun_smaller, "nothing was compared about it"


@pytest.mark.slow
@pytest.mark.parametrize(("uninterrupted", "seed"), [(True, 3), (False, 5)])
def test_the_library_equals_rescaled_places_written_naively(uninterrupted: bool, seed: int) -> None:
    baggage = Uninterrupted(returns=True) if uninterrupted else Carried()
    recipe = replace(FUNNEL, species=esgd.Recipe().species, baggage=baggage, backoff=BestOfLooks(rescale=0.5, ema=0.7))
    naive = NaiveFunnel(
        mlp, TRAIN, FITNESS, seed, uninterrupted=uninterrupted, returns=uninterrupted, rescale=0.5, memory=0.7
    )
    assert_equal_funnels(recipe, naive, uninterrupted=uninterrupted)
    assert naive.rescaled, "nothing was compared about it"


@pytest.mark.slow
@pytest.mark.parametrize(("uninterrupted", "seed"), [(True, 2), (False, 7)])
def test_the_library_equals_clones_extrapolations_and_exponential_averages_written_naively(
    uninterrupted: bool, seed: int
) -> None:
    recipe = replace(
        FUNNEL,
        species=esgd.Recipe().species,
        baggage=Uninterrupted() if uninterrupted else Carried(),
        backoff=BestOfLooks(ema=0.7),
        kinds=(MeanOfElites(), GreedySoup(), Cloned(), Extrapolated(), Mated()),
        survival=Elitist(),
    )
    naive = NaiveFunnel(
        mlp,
        TRAIN,
        FITNESS,
        seed,
        uninterrupted=uninterrupted,
        drawn_kinds=("clone", "extrapolation", ""),
        random_rest=True,
        memory=0.7,
    )
    kinds, _ = assert_equal_funnels(recipe, naive, uninterrupted=uninterrupted)
    assert kinds >= {"clone", "extrapolation"}, "nothing was compared about them"


def assert_equal_funnels(recipe: esgd.Recipe, naive: NaiveFunnel, *, uninterrupted: bool) -> tuple[set[str], bool]:
    """Returns the kinds of offspring that survived, and whether a trajectory went on from its end."""
    seed, kinds = naive.seed, set[str]()
    task = esgd.Supervised(mlp, F.cross_entropy, train=TRAIN, fitness=FITNESS)
    went_on = False
    for generation, walkers in zip(esgd.evolve(task, recipe, seed=seed), naive.run_funnel(), strict=True):
        ours = generation.population
        kinds |= {birth.kind for birth in ours.births}
        assert [birth.id for birth in ours.births] == [each.name for each in walkers]
        assert torch.equal(ours.rows, torch.stack([each.row for each in walkers]))
        assert ours.fitness.tolist() == [each.fitness for each in walkers]
        going = any(state is not None and state.place is not None for state in ours.optimizer_states)
        went_on |= going if uninterrupted else any("@" in birth.id for birth in ours.births)
    return kinds, went_on
