"""Exact early abort: losing offspring are dropped early, and nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd.errors import FitnessError
from esgd.operators import Elitist, Gaussian, Perturbed, anyone, parents_only, trajectories
from esgd.species import Sgd
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, mlp, random_data

FITNESS = random_data(500, seed=1)  # eight parts


def both(make_model: Any, recipe: dict[str, Any], *, seed: int = 0, **task: Any) -> list[list[esgd.Generation]]:
    task = classify(make_model, **{"fitness": FITNESS, **task})
    return [list(esgd.evolve(task, esgd.Recipe(**recipe, early_abort=abort), seed=seed)) for abort in (True, False)]


def saved(generations: list[esgd.Generation]) -> int:
    return sum(generation.work.fitness_saved for generation in generations)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    mu=st.integers(2, 5),
    offspring=st.integers(1, 12),
    elites=st.floats(0.1, 1),
    steps=st.integers(1, 2),
    sigma=st.sampled_from([0.01, 0.3, 3.0]),
    rest=st.sampled_from([anyone, parents_only, trajectories]),
    common=st.booleans(),
    normalised=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_a_whole_run_is_the_same_with_and_without(
    mu: int,
    offspring: int,
    elites: float,
    steps: int,
    sigma: float,
    rest: Any,
    common: bool,
    normalised: bool,
    seed: int,
) -> None:
    recipe = {
        "population": mu,
        "offspring": offspring,
        "elites": elites,
        "evolution_steps": steps,
        "generations": 2,
        "sgd_epochs": 1,
        "mutation": Gaussian(sigma=sigma),
        "survival": Elitist(rest=rest),
        **({"start": Perturbed()} if common else {}),
    }
    for early, full in zip(*both(batchnorm_mlp if normalised else mlp, recipe, seed=seed), strict=True):
        assert torch.equal(early.population.rows, full.population.rows)
        assert torch.equal(early.population.fitness, full.population.fitness)
        assert early.population.births == full.population.births
        assert early.population.policies == full.population.policies
        for name, buffer in full.population.buffers.items():
            assert torch.equal(early.population.buffers[name], buffer)
        assert full.work.fitness_saved <= early.work.fitness_saved


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sums_are_taken_in_one_order_whatever_order_the_parts_were_visited_in(seed: int) -> None:
    """In double precision, where sums of losses are rounded: single-precision losses add up exactly."""
    train, fitness = ((x.double(), y) for x, y in (random_data(48), FITNESS))
    recipe = {
        "population": 4,
        "offspring": 20,
        "elites": 3,
        "generations": 2,
        "sgd_epochs": 1,
        "mutation": Gaussian(sigma=0.3),
    }
    early, full = both(lambda: mlp().double(), recipe, seed=seed, train=train, fitness=fitness)
    assert saved(early) > 0
    for once, again in zip(early, full, strict=True):
        assert once.population.fitness.tolist() == again.population.fitness.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_who_is_just_good_enough_is_not_cut(seed: int) -> None:
    """All the loss is in one part of eight, so the sum stands at its end before the other parts are visited."""

    def line() -> nn.Module:
        return nn.Linear(INPUTS, CLASSES, bias=False)

    x = torch.zeros(512, INPUTS)
    x[:64] = random_data(64)[0]
    y = torch.zeros(512, CLASSES)
    y[:64] = 1.0
    recipe = esgd.Recipe(
        population=4,
        offspring=30,
        elites=4,
        generations=2,
        sgd_epochs=1,
        start=Perturbed(),
        mutation=Gaussian(sigma=1e-3),
        species=Sgd(lr=1e-4),
    )
    task = esgd.Supervised(line, F.mse_loss, train=(x, y), fitness=(x, y))
    early, full = (list(esgd.evolve(task, replace(recipe, early_abort=abort), seed=seed)) for abort in (True, False))
    assert saved(early) > 0
    assert any(generation.offspring_among_elites for generation in full)
    for once, again in zip(early, full, strict=True):
        assert once.population.births == again.population.births
        assert once.population.fitness.tolist() == again.population.fitness.tolist()


def test_it_saves_samples_where_offspring_are_bad() -> None:
    recipe = {
        "population": 4,
        "offspring": 20,
        "elites": 2,
        "generations": 2,
        "sgd_epochs": 1,
        "mutation": Gaussian(sigma=3.0),
    }
    early, full = both(mlp, recipe)
    spent = [sum(generation.work.fitness_evolution for generation in run) for run in (early, full)]
    assert saved(early) > 2 * 20 * 500 / 4, "more than a quarter of all fitness samples of offspring"
    assert saved(full) == 0
    assert spent[0] < 0.8 * spent[1]


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp])
def test_what_is_spent_and_what_is_saved_add_up_to_the_whole(make_model: Any) -> None:
    """Also for survivors whose evaluation was aborted and then finished: nothing is counted twice."""
    recipe = {
        "population": 6,
        "offspring": 30,
        "elites": 1,
        "generations": 2,
        "sgd_epochs": 1,
        "mutation": Gaussian(sigma=1.0),
    }
    for early, full in zip(*both(make_model, recipe), strict=True):
        assert early.work.fitness_saved > 0
        assert early.work.fitness_evolution + early.work.fitness_saved == full.work.fitness_evolution


def test_the_survivors_are_evaluated_to_the_end() -> None:
    """Also those of the random rest whose evaluation was aborted at first."""
    recipe = {
        "population": 6,
        "offspring": 30,
        "elites": 1,
        "generations": 1,
        "sgd_epochs": 1,
        "mutation": Gaussian(sigma=1.0),
    }
    early, _ = both(mlp, recipe)
    assert saved(early) > 0
    assert early[0].population.fitness.isfinite().all()


@pytest.mark.parametrize(
    ("loss", "stops"),
    [
        (F.cross_entropy, True),
        (nn.CrossEntropyLoss(), True),
        (partial(F.cross_entropy, label_smoothing=0.1), True),
        (lambda output, target: F.cross_entropy(output, target), False),
        (F.nll_loss, False),
    ],
    ids=["function", "module", "partial", "unknown", "can be negative"],
)
def test_only_losses_known_not_to_be_negative_stop_early(loss: Any, stops: bool) -> None:
    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=FITNESS)
    recipe = esgd.Recipe(
        population=3,
        offspring=10,
        elites=1,
        generations=1,
        sgd_epochs=1,
        mutation=Gaussian(sigma=3.0),
        species=Sgd(lr=1e-6),
    )
    assert (saved(list(esgd.evolve(task, recipe, seed=0))) > 0) == stops


def test_a_user_may_say_that_a_loss_is_never_negative() -> None:
    task = esgd.Supervised(
        mlp, lambda o, t: F.cross_entropy(o, t), train=random_data(48), fitness=FITNESS, nonnegative=True
    )
    recipe = esgd.Recipe(population=3, offspring=10, elites=1, generations=1, mutation=Gaussian(sigma=3.0))
    assert saved(list(esgd.evolve(task, recipe, seed=0))) > 0


def test_a_loss_that_is_negative_after_all_is_refused() -> None:
    task = esgd.Supervised(
        mlp, lambda o, t: F.cross_entropy(o, t) - 100, train=random_data(48), fitness=FITNESS, nonnegative=True
    )
    with pytest.raises(FitnessError, match="below 0, though the task says that it never is.*nonnegative=False"):
        next(esgd.evolve(task, esgd.Recipe(population=3), seed=0))


def test_a_fitness_of_zero_can_still_be_reached() -> None:
    """The cut-off is not crossed by a part that costs nothing."""

    def solver() -> nn.Module:
        return nn.Linear(INPUTS, CLASSES)

    x = torch.zeros(200, INPUTS)
    y = torch.zeros(200, CLASSES)
    task = esgd.Supervised(solver, F.mse_loss, train=(x, y), fitness=(x, y))
    recipe = esgd.Recipe(population=2, offspring=4, generations=3, sgd_epochs=5, species=Sgd(lr=1.5, gamma=1.0))
    *_, last = esgd.evolve(task, recipe, seed=0)
    assert last.best.fitness < 1e-3


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """A survival of somebody's own: the μ best, whatever the number of elites."""

    wants_ends: bool = False
    ranks_everyone: bool = True

    def __call__(self, fitness: Tensor, roles: Any, *, size: int, elites: int, generator: torch.Generator) -> list[int]:
        return fitness.argsort(stable=True).tolist()[:size]


def test_a_survival_of_ones_own_that_looks_at_everybody_is_not_misled() -> None:
    recipe = {
        "population": 6,
        "offspring": 24,
        "elites": 2,
        "generations": 2,
        "sgd_epochs": 1,
        "mutation": Gaussian(sigma=0.3),
        "survival": Truncation(),
    }
    early, full = both(mlp, recipe)
    assert torch.equal(early[-1].population.fitness, full[-1].population.fitness)
