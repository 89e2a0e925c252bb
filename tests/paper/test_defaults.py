"""What `Recipe()` says, and the paper's numbers that our constants cite."""

from __future__ import annotations

from dataclasses import fields

import pytest

import esgd
from esgd.operators import (
    Elitist,
    Fresh,
    Gaussian,
    Mated,
    PerEpoch,
    PerGeneration,
    RandomStart,
    Reestimated,
    Roulette,
    anyone,
)
from esgd.recipe import OFFSPRING_PER_PARENT, PAPER_ELITES
from esgd.schedules import Constant, Steps
from esgd.species import Adam, Mixture, Sgd, Uniform
from esgd.species.optimizer_pools import (
    FINAL_ANNEALING,
    PAPER_MOMENTUM,
    PAPER_MOMENTUM_PROBABILITY,
    PAPER_NESTEROV_PROBABILITY,
)
from tests.small import ask, classify

DEFAULTS = {
    "population": 16,
    "offspring": None,
    "mates": 2,
    "elites": 0.6,
    "generations": 10,
    "sgd_epochs": 3,
    "evolution_steps": 1,
    "species": Mixture(species=(Sgd(lr=Uniform(0.01, 0.5)), Adam(lr=Uniform(3e-4, 1e-2)))),
    "backoff": PerGeneration(probability=1.0),
    "mating": Roulette(floor=0.01, smoothing=1.0),
    "mates_from": anyone,
    "recombination": None,  # `intermediate`, unless the network has LoRA factors
    "kinds": (Mated(),),
    "mutation": Gaussian(sigma=0.01),
    "survival": Elitist(rest=anyone),
    "start": RandomStart(),
    "immigrants": (),
    "fine_tuning": None,
    "buffers": Reestimated(samples=1024),
    "baggage": Fresh(),
    "anchor": None,
    "early_abort": True,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_default_is_as_designed(name: str) -> None:
    assert getattr(esgd.Recipe(), name) == DEFAULTS[name]


def test_no_input_of_the_recipe_is_left_out_here() -> None:
    assert [field.name for field in fields(esgd.Recipe)] == list(DEFAULTS)


def test_the_derived_counts() -> None:
    recipe = esgd.Recipe()
    assert recipe.offspring_count == 64
    assert recipe.elite_count == 10
    assert recipe.mate_weights == {2: 1.0}
    assert recipe.total_epochs == 30
    assert recipe.backoff.certain


@pytest.mark.parametrize("generations", [1, 4, 10, 15])
def test_ranges_are_annealed_to_five_percent_in_the_last_generation(generations: int) -> None:
    for pool in (Sgd(lr=0.2), Adam(lr=0.2)):
        drawn = [pool(ask(k, generations=generations)).hyper["lr"] / 0.2 for k in range(1, generations + 1)]
        assert drawn[-1] == pytest.approx(0.05)
        assert drawn == pytest.approx([0.05 ** (k / generations) for k in range(1, generations + 1)])


def test_a_given_gamma_is_used_whatever_the_number_of_generations() -> None:
    assert Sgd(lr=1.0, gamma=0.33)(ask(3, generations=2)).hyper["lr"] == pytest.approx(0.33**3)


def test_the_default_pools_anneal_by_themselves_and_stay_constant_inside_a_generation() -> None:
    for pool in esgd.Recipe().species.species:
        assert pool.gamma is None
        assert pool.schedule == Constant()
        assert pool.clip_norm is None
        assert pool.hyper == pool.settings == {}


def test_policies_are_drawn_anew_in_every_generation() -> None:
    """No inheritance: the paper's rule."""
    species = esgd.Recipe().species
    inherited = esgd.Policy(optimizer="adam", hyper={"lr": 1.0})
    for k in range(1, 6):
        assert species(ask(k, inherited=inherited)) == species(ask(k))


@pytest.mark.slow
def test_the_default_recipe_trains_as_it_says() -> None:
    *_, last = esgd.evolve(classify(), esgd.Recipe(), seed=0)
    assert (last.k, len(last.population), last.elites) == (10, 16, 10)
    assert last.guarantee == "held"


def test_the_constants_are_the_papers() -> None:
    """§4: "the m-elitist strategy is applied to 60% of the parent population"; supplement B and its tables."""
    assert PAPER_ELITES == 0.6
    assert OFFSPRING_PER_PARENT == 400 / 100
    assert Uniform(0.1, 0.9) == PAPER_MOMENTUM
    assert PAPER_MOMENTUM_PROBABILITY == 0.8
    assert PAPER_NESTEROV_PROBABILITY == 0.5
    assert FINAL_ANNEALING == 0.05
    assert esgd.FineTuning(lr=1e-4).epochs == 5


# The paper's tables, written with our names: each must be a recipe that can be stated.

BN50 = esgd.Recipe(
    population=100,
    offspring=400,
    generations=15,
    sgd_epochs=1,
    backoff=PerEpoch(),
    species=Mixture(species=(Sgd(lr=(1e-4, 2e-3), gamma=0.9), Adam(lr=(1e-4, 1e-3), gamma=0.9))),
    fine_tuning=esgd.FineTuning(lr=1e-5),
)
CIFAR10 = esgd.Recipe(
    population=128,
    offspring=768,
    generations=8,
    sgd_epochs=20,
    species=Sgd(
        lr=(0.09, 0.11),
        gamma=1.0,
        momentum=0.9,
        momentum_probability=1.0,
        nesterov_probability=1.0,
        schedule=Steps(after=(80, 121)),
    ),
)
PTB = esgd.Recipe(
    population=100,
    offspring=400,
    mates={1, 2},
    generations=15,
    sgd_epochs=20,
    backoff=PerGeneration(probability=0.7),
    mating=Roulette(smoothing=0.5),
    mutation=Gaussian(sigma=(0.01, 0.15)),
    species=Mixture(
        species=(
            Sgd(lr=(1, 60), gamma=0.33, hyper={"weight_decay": Uniform(0, 1.2e-5)}),
            Adam(lr=(1e-6, 1e-3), gamma=0.33, hyper={"weight_decay": Uniform(0, 1.2e-5)}),
        )
    ),
)


@pytest.mark.parametrize(("recipe", "m"), [(BN50, 60), (CIFAR10, 77), (PTB, 60)], ids=["BN50", "CIFAR-10", "PTB"])
def test_the_papers_tables_can_be_stated(recipe: esgd.Recipe, m: int) -> None:
    assert recipe.elite_count == m
    assert esgd.Recipe.from_dict(recipe.to_dict()) == recipe


def test_the_cifar_pool_always_moves_with_nesterov() -> None:
    for j in range(200):
        policy = CIFAR10.species(ask(3, j, generations=8))
        assert (policy.hyper["momentum"], policy.hyper["nesterov"]) == (0.9, True)
        assert 0.09 <= policy.hyper["lr"] <= 0.11


def test_penn_treebank_draws_one_or_two_mates_evenly() -> None:
    assert PTB.mate_weights == {1: 0.5, 2: 0.5}
