"""Optimizer state as baggage: what an individual brings into its next SGD step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import esgd
from esgd.errors import RecipeError
from esgd.operators import BestOfLooks, Carried, CarriedByMate, Fresh, Gaussian, Never, PerGeneration, Uninterrupted
from esgd.population import OptimizerState
from esgd.sizes import Each
from esgd.species import Adam, Choice, Fixed, Optimizer, Sgd
from tests.small import classify, mlp, random_data

MOMENTUM = esgd.Policy(optimizer="sgd", hyper={"lr": 0.05, "momentum": 0.9})
ADAM = esgd.Policy(optimizer="adam", hyper={"lr": 0.01})


def last(baggage: Any, policy: Any, *, generations: int, sgd_epochs: Any, **changes: Any) -> esgd.Generation:
    """A run on batches that come in the same order in every epoch, so that only the optimizer's state can differ."""
    x, y = random_data(48)
    batches = [(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 32)]
    recipe = {
        "population": 2,
        "evolution_steps": 0,
        "backoff": Never(),
        "species": Fixed(policy=policy) if isinstance(policy, esgd.Policy) else policy,
        "generations": generations,
        "sgd_epochs": sgd_epochs,
        "baggage": baggage,
        **changes,
    }
    *_, generation = esgd.evolve(classify(train=lambda: batches), esgd.Recipe(**recipe), seed=0)
    return generation


@pytest.mark.slow
@pytest.mark.parametrize("policy", [MOMENTUM, ADAM], ids=str)
def test_carried_state_makes_three_generations_of_one_epoch_one_generation_of_three(policy: esgd.Policy) -> None:
    whole = last(Carried(), policy, generations=1, sgd_epochs=3)
    pieces = last(Carried(), policy, generations=3, sgd_epochs=1)
    assert torch.equal(pieces.population.rows, whole.population.rows)
    assert not torch.equal(last(Fresh(), policy, generations=3, sgd_epochs=1).population.rows, whole.population.rows)


def test_fresh_individuals_travel_light() -> None:
    assert last(Fresh(), MOMENTUM, generations=2, sgd_epochs=1).population.optimizer_states == (None, None)


def test_state_is_dropped_when_the_kind_of_optimizer_changes() -> None:
    """Adam, then SGD with momentum, then SGD again: the second begins afresh, the third goes on."""
    kinds = {1: ADAM, 2: MOMENTUM, 3: MOMENTUM}
    carried = last(Carried(), lambda draw: kinds[draw.k], generations=2, sgd_epochs=1)
    fresh = last(Fresh(), lambda draw: kinds[draw.k], generations=2, sgd_epochs=1)
    assert torch.equal(carried.population.rows, fresh.population.rows)
    carried, fresh = (last(b, lambda draw: kinds[draw.k], generations=3, sgd_epochs=1) for b in (Carried(), Fresh()))
    assert not torch.equal(carried.population.rows, fresh.population.rows)
    assert {state.kind for state in carried.population.optimizer_states} == {"sgd momentum"}


def test_carried_state_never_brings_old_hyper_parameters() -> None:
    """The learning rate and momentum are always those that were drawn for this generation."""
    hyper = {1: {"lr": 0.05, "momentum": 0.9}, 2: {"lr": 0.0, "momentum": 0.0}}
    species = lambda draw: esgd.Policy(optimizer="sgd", hyper=hyper[draw.k])  # noqa: E731
    first = last(Carried(), species, generations=1, sgd_epochs=1)
    second = last(Carried(), species, generations=2, sgd_epochs=1)
    assert torch.equal(second.population.rows, first.population.rows), "with lr = 0 nobody moves"


@pytest.mark.parametrize("baggage", [Carried(), CarriedByMate()], ids=str)
def test_an_offspring_takes_the_state_of_its_fittest_mate_or_none(baggage: Any) -> None:
    generation = last(
        baggage,
        Sgd(lr=(0.01, 0.3), momentum=0.9, momentum_probability=1.0),
        generations=1,
        sgd_epochs=1,
        evolution_steps=1,
        population=8,
        elites=4,
        mutation=Gaussian(sigma=0.5),  # bad offspring, so that their parents survive beside them
    )
    population = generation.population
    states = dict(zip([birth.id for birth in population.births], population.optimizer_states, strict=True))
    born = [birth for birth in population.births if birth.generation == 1]
    assert born
    with_parent = [birth for birth in born if birth.parents[0] in states]
    assert with_parent, "no offspring whose fittest mate survived: nothing is compared"
    for birth in with_parent:
        if baggage == Carried():
            assert states[birth.id] is None
        else:
            theirs = states[birth.parents[0]]
            assert set(states[birth.id].tensors) == set(theirs.tensors)
            assert all(torch.equal(states[birth.id].tensors[name], t) for name, t in theirs.tensors.items())


def test_who_backs_off_keeps_the_state_it_had() -> None:
    """Generation 1 moves; generation 2 is a disaster and backed off; generation 3 goes on as if it had not been."""
    rates = {1: 0.05, 2: 1e30, 3: 0.05}
    species = lambda draw: esgd.Policy(optimizer="sgd", hyper={"lr": rates[draw.k], "momentum": 0.9})  # noqa: E731
    data = {"backoff": PerGeneration(), "sgd_epochs": 1}
    after = last(Carried(), species, generations=3, **data)
    assert after.accepted == (True, True)
    rates = {1: 0.05, 2: 0.05}
    assert torch.equal(after.population.rows, last(Carried(), species, generations=2, **data).population.rows)


def test_who_backs_off_from_another_kind_of_optimizer_keeps_the_state_it_had_too() -> None:
    """The policy on record is still the accepted one, and so is the state that goes with it."""
    policies = {1: MOMENTUM, 2: esgd.Policy(optimizer="adam", hyper={"lr": 1e30}), 3: MOMENTUM}
    data = {"backoff": PerGeneration(), "sgd_epochs": 1}
    second = last(Carried(), lambda draw: policies[draw.k], generations=2, **data)
    assert second.accepted == (False, False)
    assert {state.kind for state in second.population.optimizer_states} == {"sgd momentum"}
    detour = last(Carried(), lambda draw: policies[draw.k], generations=3, **data)
    straight = last(Carried(), MOMENTUM, generations=2, **data)
    assert torch.equal(detour.population.rows, straight.population.rows)


def test_inherit_gives_the_fittest_mates_state() -> None:
    states = [OptimizerState("sgd", {}), OptimizerState("adam", {}), None]
    assert CarriedByMate().inherit(states) is states[0]
    assert CarriedByMate().inherit(states[::-1]) is None
    assert Carried().inherit(states) is None
    assert Fresh().inherit(states) is None
    assert (Fresh().keeps, Carried().keeps, CarriedByMate().keeps) == (False, True, True)


def test_state_that_is_not_made_of_tensors_cannot_be_carried() -> None:
    with pytest.raises(RecipeError, match="optimizer 'lbfgs' is a .*cannot be carried.*Use baggage=Fresh"):
        last(Carried(), Optimizer(name="lbfgs", lr=0.1), generations=1, sgd_epochs=1)


def test_a_keyword_that_changes_what_the_state_is_made_of_does_not_break_the_run() -> None:
    """AMSGrad keeps one tensor more than plain Adam."""
    species = Adam(lr=0.01, hyper={"amsgrad": Choice((True, False))})
    generation = last(Carried(), species, generations=5, sgd_epochs=1)
    assert generation.population.fitness.isfinite().all()


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_sgd_that_begins_without_state_begins_smaller(engine: str) -> None:
    """Nothing is learnt and smaller is fitter, so what is kept of generation 2 is where its SGD began."""
    still = esgd.Policy(optimizer="sgd", hyper={"lr": 0.0})
    x, _ = random_data(48)
    task = esgd.Supervised(mlp, F.mse_loss, train=(x, torch.zeros(48, 3)), fitness=(x[:1] * 1e3, torch.zeros(1, 3)))
    recipe = esgd.Recipe(
        population=2,
        evolution_steps=0,
        generations=3,
        sgd_epochs=1,
        species=Fixed(policy=still),
        backoff=BestOfLooks(looks=(), mean=0.0),
        baggage=Uninterrupted(returns=True, shrink=0.3),
    )
    first, second, third = (
        generation.population.rows for generation in esgd.evolve(task, recipe, seed=0, engine=engine)
    )
    factors = second / first
    assert torch.allclose(factors, factors[:, :1].expand_as(factors))
    assert all(0.7 < factor < 1.0 for factor in factors[:, 0].tolist())
    assert factors[0, 0] != factors[1, 0]
    assert torch.equal(third, second)


def test_a_generation_without_epochs_leaves_what_returned_as_it_is() -> None:
    baggage, looks = Uninterrupted(returns=True, shrink=0.3), BestOfLooks(looks=(), mean=0.0)
    still = esgd.Policy(optimizer="sgd", hyper={"lr": 0.0})
    generation = last(baggage, still, generations=2, sgd_epochs=Each((1, 0)), backoff=looks)
    assert generation.population.optimizer_states == (None, None)


@pytest.mark.parametrize("shrink", [-0.1, 1.5, float("nan"), "0.2"])
def test_a_share_to_shrink_by_that_cannot_be_is_refused(shrink: Any) -> None:
    with pytest.raises(RecipeError, match="shrink"):
        Uninterrupted(shrink=shrink)
