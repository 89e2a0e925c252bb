"""Species made of others."""

from __future__ import annotations

from typing import Any

import pytest

import esgd
from esgd.errors import RecipeError
from esgd.species import Adam, Fixed, Mixture, Once, Sgd
from tests.small import ask

POLICY = esgd.Policy(optimizer="sgd", hyper={"lr": 0.4, "momentum": 0.9})
POOLS = (Sgd(lr=(0.1, 0.5), gamma=0.5), Adam(lr=(0.1, 0.5), gamma=0.5))


def test_a_mixture_draws_what_its_members_draw() -> None:
    for j in range(40):
        policy = Mixture(species=POOLS)(ask(2, j))
        assert policy == POOLS[policy.optimizer == "adam"](ask(2, j))


def test_a_weight_of_nothing_is_never_drawn() -> None:
    assert {Mixture(species=POOLS, weights=(0, 1))(ask(1, j)).optimizer for j in range(100)} == {"adam"}


def test_any_function_of_a_draw_is_a_species() -> None:
    by_rank = Mixture(species=(lambda draw: POLICY,))
    assert by_rank(ask()) is POLICY


def test_fixed_is_the_same_for_everyone_and_always() -> None:
    assert {Fixed(policy=POLICY)(ask(k, j)).hyper["lr"] for k in (1, 5) for j in range(5)} == {0.4}
    assert Fixed(policy=POLICY)(ask(3, 1)) == POLICY


def test_fixed_may_be_annealed() -> None:
    policy = Fixed(policy=POLICY, gamma=0.5)(ask(3))
    assert policy.hyper == {"lr": 0.05, "momentum": 0.9}
    assert policy.annealing == 0.125


def test_once_keeps_the_draw_of_generation_1_and_anneals_it() -> None:
    kept = Once(species=Mixture(species=POOLS))
    for j in range(20):
        first = kept(ask(1, j))
        assert first == Mixture(species=POOLS)(ask(1, j))
        for k in (2, 7):
            later = kept(ask(k, j))
            assert later.optimizer == first.optimizer
            assert later.hyper["lr"] == pytest.approx(first.hyper["lr"] * 0.5 ** (k - 1))
            assert later.annealing == 0.5**k
            assert {**later.hyper, "lr": 0} == {**first.hyper, "lr": 0}


def test_once_anneals_by_the_number_of_generations_as_its_pool_does() -> None:
    kept = Once(species=Sgd(lr=0.2))
    assert kept(ask(10, generations=10)).hyper["lr"] == pytest.approx(0.2 * 0.05)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Mixture(species=()), "nothing to choose from"),
        (lambda: Mixture(species=POOLS, weights=(1,)), r"weights=\[1\] do not fit 2 values"),
        (lambda: Mixture(species=POOLS, weights=(1, -1)), r"weights\[1\]=-1 is below 0"),
        (lambda: Mixture(species=POOLS[0]), "is not a list. They compete in one population"),
        (lambda: Fixed(policy=POLICY, gamma=5), r"gamma=5 is not in \(0, 1\].*Use 1 for no annealing"),
        (lambda: Fixed(policy=POLICY, gamma="x"), "gamma='x' is not a number"),
    ],
)
def test_a_mixture_that_cannot_be_drawn_from_is_refused(make: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        make()


def test_a_fixed_policy_may_leave_the_learning_rate_to_torch() -> None:
    assert Fixed(policy=esgd.Policy(optimizer="adam", hyper={}))(ask()).hyper == {}
