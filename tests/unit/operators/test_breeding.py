"""Births: who the mates are, and what is written down about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from esgd.operators import (
    Cloned,
    Extrapolated,
    Gaussian,
    GreedySoup,
    Mated,
    MeanOfElites,
    OffspringKind,
    Roulette,
    breed,
)
from esgd.operators.kinds import Mates, Union
from esgd.population import Birth
from esgd.protocols import Scores
from esgd.randomness import Seeds

PARENTS = [Birth("0.0.0", founder=0), Birth("3.1.7", founder=4), Birth("2.1.1", founder=2), Birth("0.1.0", founder=-1)]
FITNESS = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)


def summed(births: Sequence[Birth]) -> Scores:
    """As if the fitness of a soup were that of its first mate, lower by 0.01 for each mate whose number is odd."""
    fitness = [float(FITNESS[birth.mates[0]]) - 0.01 * sum(mate % 2 for mate in birth.mates) for birth in births]
    return Scores(fitness=torch.tensor(fitness), complete=torch.ones(len(births), dtype=torch.bool))


def births(
    fitness: Tensor = FITNESS,
    *,
    seed: int = 0,
    k: int = 4,
    v: int = 1,
    mates: dict[int, float],
    kinds: Sequence[OffspringKind] = (Mated(),),
    score: Callable[[Sequence[Birth]], Scores] = summed,
) -> list[Birth]:
    return breed(
        PARENTS,
        fitness,
        possible=range(len(PARENTS)),
        kinds=kinds,
        k=k,
        v=v,
        last=False,
        offspring=200,
        elites=2,
        mates=mates,
        mating=Roulette(floor=1.0),
        mutation=Gaussian(sigma=0.02),
        score=score,
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
        possible=range(4),
        kinds=(Mated(),),
        elites=2,
        k=4,
        v=1,
        last=False,
        offspring=5,
        mates={2: 1.0},
        mating=Roulette(floor=1.0),
        mutation=Gaussian(sigma=0.02),
        score=summed,
        seeds=Seeds(0),
    )
    assert few == births(mates={2: 1.0})[:5]


def test_a_diverged_parent_is_nobodys_mate() -> None:
    fitness = torch.tensor([0.4, torch.inf, 0.3, 0.2], dtype=torch.float64)
    assert all(1 not in birth.mates for birth in births(fitness, mates={3: 1.0}))


def test_kinds_are_drawn_by_their_shares_and_named() -> None:
    found = births(mates={2: 1.0}, kinds=(Mated(share=3.0), Cloned()))
    count = Counter(birth.kind for birth in found)
    assert set(count) == {"", "clone"}
    assert 30 < count["clone"] < 70
    assert all(birth.weights == (1.0,) and birth.sigma == 0.0 for birth in found if birth.kind == "clone")
    assert [birth.id for birth in found] == [f"4.1.{i}" for i in range(200)]


def test_of_some_kinds_there_is_one_in_every_evolution_step() -> None:
    first, second, *others = births(mates={2: 1.0}, kinds=(MeanOfElites(), Mated(), GreedySoup()))
    assert (first.kind, first.mates, first.weights) == ("mean", (1, 3), (0.5, 0.5))
    assert (second.kind, second.mates) == ("soup", (1, 3)), "2 and 0 made the soup no fitter"
    assert len(others) == 198
    assert {birth.kind for birth in others} == {""}


def test_a_soup_of_one_is_no_offspring() -> None:
    def never_fitter(births: Sequence[Birth]) -> Scores:
        return Scores(fitness=torch.ones(len(births)), complete=torch.ones(len(births), dtype=torch.bool))

    assert "soup" not in {
        birth.kind for birth in births(mates={2: 1.0}, kinds=(GreedySoup(), Mated()), score=never_fitter)
    }


def test_an_extrapolation_goes_beyond_the_mean_of_its_mates() -> None:
    for birth in births(mates={2: 1.0}, kinds=(Extrapolated(alpha=1.5),)):
        assert birth.weights == pytest.approx((0.25, 0.75))
        assert FITNESS[birth.mates[0]] <= FITNESS[birth.mates[1]]


def test_a_birth_has_plain_numbers_whatever_a_kind_returns() -> None:
    class Foreign:
        share, name = 1.0, "foreign"

        def tries(self, population: int, *, last: bool) -> int:
            return 0

        def __call__(self, candidates: Mates, seeds: Seeds) -> Union:
            return Union([np.int64(3), torch.tensor(1)], weights=[np.float32(0.5), 0.5])  # type: ignore[arg-type]

    first, *_ = births(mates={2: 1.0}, kinds=(Foreign(),))
    assert (first.mates, first.weights) == ((3, 1), (0.5, 0.5))
    assert json.loads(json.dumps([first.mates, first.weights])) == [[3, 1], [0.5, 0.5]]
