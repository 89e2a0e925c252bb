"""The pools an optimizer is drawn from."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esgd.errors import RecipeError
from esgd.schedules import Cosine
from esgd.species import Adam, Choice, Integers, LogUniform, Optimizer, Sgd, Uniform
from tests.small import ask

POOLS = [Sgd, Adam, lambda **given: Optimizer(name="adamw", **given)]
every_pool = pytest.mark.parametrize("pool", POOLS, ids=["sgd", "adam", "optimizer"])


@every_pool
def test_a_draw_is_decided_by_its_address(pool: Any) -> None:
    species = pool(lr=(0.1, 0.5), hyper={"weight_decay": Uniform(0, 1)})
    assert species(ask(2, 3)) == species(ask(2, 3))
    others = [ask(2, 4), ask(3, 3), ask(2, 3, seed=1)]
    assert all(species(other).hyper["weight_decay"] != species(ask(2, 3)).hyper["weight_decay"] for other in others)


@every_pool
def test_a_pool_of_the_paper_looks_neither_at_the_past_nor_at_what_was_inherited(pool: Any) -> None:
    species = pool(lr=(0.1, 0.5))
    elsewhere = species(ask(1, 0, seed=9))
    assert species(ask(2, 3, inherited=elsewhere)) == species(ask(2, 3))


@every_pool
@pytest.mark.parametrize("lr", [0.1, (0.1, 0.1), Uniform(0.1, 0.1), LogUniform(0.1, 0.1)], ids=str)
def test_a_rate_is_a_number_a_range_or_a_distribution(pool: Any, lr: Any) -> None:
    policy = pool(lr=lr, gamma=0.5)(ask(3))
    assert policy.hyper["lr"] == pytest.approx(0.1 * 0.5**3)
    assert policy.annealing == 0.5**3
    assert policy.hyper["lr"] / policy.annealing == pytest.approx(0.1), "the draw can be read back"


@every_pool
def test_everything_else_is_handed_on_and_drawn_where_it_is_a_distribution(pool: Any) -> None:
    species = pool(
        lr=0.1,
        hyper={"weight_decay": Uniform(0, 1.2e-5), "maximize": False},
        settings={"batch_size": Integers(20, 64), "dropout": Choice((0.1, 0.5))},
        schedule=Cosine(),
        clip_norm=0.25,
    )
    policy = species(ask(1, 0))
    assert 0 <= policy.hyper["weight_decay"] <= 1.2e-5
    assert policy.hyper["maximize"] is False
    assert 20 <= policy.settings["batch_size"] <= 64
    assert policy.settings["dropout"] in (0.1, 0.5)
    assert (policy.schedule, policy.clip_norm) == (Cosine(), 0.25)
    sizes = {species(ask(1, j)).settings["batch_size"] for j in range(50)}
    assert len(sizes) > 10


def test_sgd_and_adam_name_their_optimizers() -> None:
    assert Sgd(lr=0.1)(ask()).optimizer == "sgd"
    assert Adam(lr=0.1)(ask()).optimizer == "adam"
    assert Optimizer(name="rmsprop", lr=0.1)(ask()).optimizer == "rmsprop"


def test_momentum_may_be_fixed_always_or_never() -> None:
    never = [Sgd(lr=0.1, momentum_probability=0)(ask(1, j)).hyper for j in range(50)]
    assert all((hyper["momentum"], hyper["nesterov"]) == (0, False) for hyper in never)
    always = [Sgd(lr=0.1, momentum=0.9, momentum_probability=1, nesterov_probability=1)(ask(1, j)) for j in range(50)]
    assert all((policy.hyper["momentum"], policy.hyper["nesterov"]) == (0.9, True) for policy in always)


def test_nesterov_is_not_used_without_momentum_which_torch_refuses() -> None:
    pool = Sgd(lr=0.1, momentum=0.0, momentum_probability=1, nesterov_probability=1)
    assert pool(ask()).hyper["nesterov"] is False


def test_hyper_parameters_are_drawn_from_streams_of_their_own() -> None:
    """A keyword more does not change what the others are: arms that differ in one thing differ in one thing."""
    plain, more = Sgd(lr=(0.1, 0.5)), Sgd(lr=(0.1, 0.5), hyper={"weight_decay": Uniform(0, 1)})
    for j in range(20):
        drawn = dict(more(ask(1, j)).hyper)
        del drawn["weight_decay"]
        assert drawn == plain(ask(1, j)).hyper


@given(st.integers(1, 30), st.integers(1, 30))
def test_without_gamma_the_range_ends_at_five_percent(k: int, generations: int) -> None:
    annealing = Adam(lr=1.0)(ask(k, generations=generations)).annealing
    assert annealing == pytest.approx(0.05 ** (k / generations))


@every_pool
@pytest.mark.parametrize(
    "lr", [-0.1, nan, inf, (-1, 1), "0.1", None, True, Integers(1, 2), Choice((0.1, 0.2))], ids=str
)
def test_what_is_not_a_learning_rate_is_refused(pool: Any, lr: Any) -> None:
    with pytest.raises(
        RecipeError, match=r"a learning rate from a range. Give a finite number ≥ 0, a range \(low, high\)"
    ):
        pool(lr=lr)


@every_pool
def test_a_range_of_three_numbers_is_refused_in_our_own_words(pool: Any) -> None:
    with pytest.raises(
        RecipeError, match=r"lr=\(0.1, 0.2, 0.3\) is not a number. Algorithm 1 draws a learning rate from a range"
    ):
        pool(lr=(0.1, 0.2, 0.3))


@every_pool
@pytest.mark.parametrize("gamma", [0, -0.5, 1.5, nan])
def test_an_annealing_that_is_not_one_is_refused(pool: Any, gamma: float) -> None:
    with pytest.raises(RecipeError, match=r"is not in \(0, 1\].*Use 0.9 as the paper's speech tables do") as caught:
        pool(lr=0.1, gamma=gamma)
    assert f"gamma={gamma}" in str(caught.value)


@pytest.mark.parametrize("name", ["momentum_probability", "nesterov_probability"])
@pytest.mark.parametrize("value", [-0.1, 1.1, nan])
def test_what_is_not_a_probability_is_refused(name: str, value: float) -> None:
    says = rf"{name}={value} is not in \[0, 1\]. It is a probability.*Give a number from 0 to 1"
    with pytest.raises(RecipeError, match=says):
        Sgd(lr=0.1, **{name: value})


def test_an_unknown_optimizer_is_refused_at_once_and_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="optimizer='adamv' is not in torch.optim. Did you mean 'adam"):
        Optimizer(name="adamv", lr=0.1)


@every_pool
def test_an_annealing_or_a_table_of_another_type_is_refused(pool: Any) -> None:
    with pytest.raises(RecipeError, match="gamma='x' is not a number. The learning-rate range of generation k"):
        pool(lr=0.1, gamma="x")
    with pytest.raises(RecipeError, match="hyper=5 is not a mapping"):
        pool(lr=0.1, hyper=5)
    with pytest.raises(RecipeError, match="settings=5 is not a mapping"):
        pool(lr=0.1, settings=5)


@pytest.mark.parametrize("momentum", [-0.5, nan, "x"])
def test_what_is_not_a_momentum_is_refused(momentum: Any) -> None:
    with pytest.raises(RecipeError, match=f"momentum={momentum!r} is.*Give a number ≥ 0, or a distribution"):
        Sgd(lr=0.1, momentum=momentum)


@every_pool
def test_a_learning_rate_has_one_place(pool: Any) -> None:
    with pytest.raises(RecipeError, match="hyper has lr=5, .*contradict each other. Use lr of the pool instead"):
        pool(lr=0.1, hyper={"lr": 5})


@pytest.mark.parametrize(
    ("name", "field"), [("momentum", "momentum_probability"), ("nesterov", "nesterov_probability")]
)
def test_what_the_sgd_pool_draws_by_its_own_rule_has_one_place(name: str, field: str) -> None:
    with pytest.raises(RecipeError, match=f"hyper has {name}=1, .*Use .*{field} of the pool"):
        Sgd(lr=0.1, hyper={name: 1})
    assert Optimizer(name="sgd", lr=0.1, hyper={"momentum": 0.9})(ask()).hyper["momentum"] == 0.9


@every_pool
def test_a_misspelt_keyword_is_refused_at_once_and_gets_a_suggestion(pool: Any) -> None:
    with pytest.raises(RecipeError, match="takes no 'weight_decy'.*Did you mean 'weight_decay'"):
        pool(lr=0.1, hyper={"weight_decy": 0.1})
    with pytest.raises(RecipeError, match="takes no 'params'"):
        pool(lr=0.1, hyper={"params": []})


class Anything(torch.optim.SGD):
    """An optimizer that hands its keywords on."""

    def __init__(self, params: Any, **keywords: Any) -> None:
        super().__init__(params, **keywords)


def test_an_optimizer_that_takes_any_keyword_is_believed() -> None:
    pool = Optimizer(name=f"{Anything.__module__}:Anything", lr=0.1, hyper={"dampening": 0.5})
    assert pool(ask()).hyper["dampening"] == 0.5


def test_an_optimizer_goes_by_its_name() -> None:
    with pytest.raises(RecipeError, match="is not a name.*Use a class of torch.optim in lower case"):
        Optimizer(name=torch.optim.AdamW, lr=0.1)
