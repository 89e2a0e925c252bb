"""Births: who the mates are, and what is written down about them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from esgd.operators import Gaussian, Roulette, breed
from esgd.population import Birth
from esgd.randomness import Seeds

PARENTS = [Birth("0.0.0", founder=0), Birth("3.1.7", founder=4), Birth("2.1.1", founder=2), Birth("0.1.0", founder=-1)]
FITNESS = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)


def births(fitness: Tensor = FITNESS, *, seed: int = 0, k: int = 4, v: int = 1, mates: dict[int, float]) -> list[Birth]:
    return breed(
        PARENTS,
        fitness,
        k=k,
        v=v,
        offspring=200,
        mates=mates,
        mating=Roulette(floor=1.0),
        mutation=Gaussian(sigma=0.02),
        seeds=Seeds(seed),
    )


def test_a_birth_names_its_mates_from_the_fittest_on() -> None:
    for number, birth in enumerate(births(mates={3: 1.0})):
        assert birth.id == f"4.1.{number}"
        assert birth.generation == 4
        assert [float(FITNESS[j]) for j in birth.mates] == sorted(float(FITNESS[j]) for j in birth.mates)
        assert birth.parents == tuple(PARENTS[j].id for j in birth.mates)
        assert birth.founder == PARENTS[birth.mates[0]].founder
        assert birth.sigma == 0.02 / 4


def test_equally_fit_mates_are_named_in_the_order_of_the_population() -> None:
    for birth in births(torch.ones(4, dtype=torch.float64), mates={2: 1.0}):
        assert list(birth.mates) == sorted(birth.mates)


def test_mates_are_distinct_within_an_offspring_and_independent_between_offspring() -> None:
    pairs = [birth.mates for birth in births(mates={2: 1.0})]
    assert all(len(set(pair)) == 2 for pair in pairs)
    assert len(set(pairs)) == 6, "in 200 births every pair of four parents comes up"


def test_the_number_of_mates_follows_its_weights() -> None:
    count = Counter(len(birth.mates) for birth in births(mates={1: 1.0, 2: 3.0}))
    assert set(count) == {1, 2}
    assert count[1] / 200 == pytest.approx(0.25, abs=0.08)


def test_a_birth_depends_on_its_address_alone() -> None:
    """Fewer offspring, or other ones before it, cannot change who somebody's parents are."""
    assert births(mates={2: 1.0}) == births(mates={2: 1.0})
    assert births(mates={2: 1.0}) != births(mates={2: 1.0}, seed=1)
    few = breed(
        PARENTS,
        FITNESS,
        k=4,
        v=1,
        offspring=5,
        mates={2: 1.0},
        mating=Roulette(floor=1.0),
        mutation=Gaussian(sigma=0.02),
        seeds=Seeds(0),
    )
    assert few == births(mates={2: 1.0})[:5]


def test_a_diverged_parent_is_nobodys_mate() -> None:
    fitness = torch.tensor([0.4, torch.inf, 0.3, 0.2], dtype=torch.float64)
    assert all(1 not in birth.mates for birth in births(fitness, mates={3: 1.0}))
