"""Learning rates at fixed ratios."""

from __future__ import annotations

from typing import Any

import pytest

import esgd
from esgd.errors import RecipeError
from esgd.protocols import Draw
from esgd.randomness import Seeds
from esgd.species import Adam, Fixed, Inherited, Ladder

RATE = Adam(lr=0.01, gamma=0.5)


def at(k: int, j: int, **more: Any) -> Draw:
    return Draw(k=k, j=j, generations=4, stream=Seeds(0), **more)


def test_each_individual_has_its_own_rate_and_the_annealing_of_the_species() -> None:
    ladder = Ladder(species=RATE, factors=(1, 4, 16))
    assert [ladder(at(1, j)).hyper["lr"] for j in range(4)] == pytest.approx([0.005, 0.02, 0.08, 0.005])
    assert ladder(at(2, 1)).hyper["lr"] == pytest.approx(0.01)


def test_survivors_keep_the_rate_that_they_were_given() -> None:
    species = Inherited(species=Ladder(species=Adam(lr=0.01, gamma=1.0), factors=(1, 4)), offspring_only=True)
    winner = species(at(1, 1))
    assert species(at(2, 0, inherited=winner)) == winner


def test_a_rate_is_not_multiplied_again_in_every_generation() -> None:
    kept = Inherited(species=Adam(lr=0.01, gamma=1.0), probability=1.0, jitter=0.0)
    ladder = Ladder(species=kept, factors=(1, 4))
    first = ladder(at(1, 1))
    assert ladder(at(2, 1, inherited=first)) == first


def test_a_policy_without_a_rate_stays_as_it_is() -> None:
    bare = Fixed(policy=esgd.Policy(optimizer="adafactor", hyper={}))
    assert Ladder(species=bare, factors=(2,))(at(1, 0)) == bare(at(1, 0))


@pytest.mark.parametrize("factors", [(), (0,), (1, -2), (1, float("nan"))])
def test_factors_are_positive_and_there_are_some(factors: Any) -> None:
    with pytest.raises(RecipeError, match="factors"):
        Ladder(species=RATE, factors=factors)
