"""The paper's table of BN50 hyper-parameters, cell by cell, and what §4.1 says in words."""

from __future__ import annotations

from typing import Any

import pytest

from esgd.operators import Elitist, Gaussian, PerEpoch, RandomStart
from esgd.policies import Policy
from esgd.protocols import Fared
from esgd.species import Adam, Sgd, Uniform
from esgd.studies.study import Single
from esgd_paper.bn50 import paper_network, study
from esgd_paper.species.plateau import Plateau
from tests.small import ask

RECIPE = study("paper").recipe
SGD, ADAM = RECIPE.species.species  # type: ignore[attr-defined]
POOLS = pytest.mark.parametrize("pool", [SGD, ADAM], ids=["SGD", "ADAM"])


@pytest.mark.parametrize(
    ("symbol", "ours", "sgd", "adam"),
    [
        ("μ", RECIPE.population, 100, 100),
        ("λ", RECIPE.offspring, 400, 400),
        ("ρ", RECIPE.mates, 2, 2),
        ("K_s", RECIPE.sgd_epochs, 1, 1),
        ("K_v", RECIPE.evolution_steps, 1, 1),
        ("a_0", (SGD.lr.low, ADAM.lr.low), 1e-4, 1e-4),
        ("b_0", (SGD.lr.high, ADAM.lr.high), 2e-3, 1e-3),
        ("γ", (SGD.gamma, ADAM.gamma), 0.9, 0.9),
        ("σ_0", RECIPE.mutation.sigma, 0.01, 0.01),  # type: ignore[attr-defined]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_of_the_table(symbol: str, ours: Any, sgd: float, adam: float) -> None:
    assert (ours if isinstance(ours, tuple) else (ours, ours)) == (sgd, adam)


@POOLS
def test_the_rows_a_k_and_b_k(pool: Sgd | Adam) -> None:
    """a_k = γ^k a_0 and b_k = γ^k b_0: the range that learning rates are drawn from, uniformly."""
    assert isinstance(pool.lr, Uniform)
    for k in (1, 2, 15):
        drawn = [pool(ask(k, j, generations=15)).hyper["lr"] for j in range(400)]
        low, high = 0.9**k * pool.lr.low, 0.9**k * pool.lr.high
        assert low <= min(drawn) < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < max(drawn) <= high


def test_the_row_momentum() -> None:
    """[0.1, 0.9] for SGD. The table says so of ADAM too, where the text has "β_1 = 0.9 and β_2 = 0.999 are fixed"."""
    assert SGD.momentum == Uniform(0.1, 0.9)
    assert "betas" not in ADAM(ask()).hyper


def test_the_row_sigma_k() -> None:
    """σ_k = σ_0 / k."""
    assert [Gaussian(sigma=0.01).strength(k, None) for k in (1, 2, 10)] == [0.01, 0.005, 0.001]  # type: ignore[arg-type]
    assert RECIPE.mutation == Gaussian(sigma=0.01)


def test_what_the_text_says_of_momentum() -> None:
    """ "there is a 20% chance not using momentum and 80% chance using it"; then "a 50% chance using the nesterov"."""
    assert (SGD.momentum_probability, SGD.nesterov_probability) == (0.8, 0.5)


def test_what_the_text_says_of_generations_and_elites() -> None:
    """ "after 15 generations (K_s=1), a 5-epoch fine-tuning is applied"; elites are 60% of the parents."""
    assert RECIPE.generations == 15
    assert RECIPE.fine_tuning is not None
    assert RECIPE.fine_tuning.epochs == 5
    assert 0 < RECIPE.fine_tuning.lr < 0.9**15 * 2e-3
    assert RECIPE.total_epochs == 20
    assert RECIPE.elite_count == 60
    assert RECIPE.backoff == PerEpoch(probability=1.0)
    assert RECIPE.survival == Elitist()
    assert RECIPE.start == RandomStart()


def test_the_single_baseline() -> None:
    """ "SGD with a batch size 128 without momentum for 20 epochs. The initial learning rate is 0.001"."""
    single = study("paper").single
    assert single == Single(
        species=Plateau(policy=Policy(optimizer="sgd", hyper={"lr": 0.001}), patience=0, factor=0.5), backoff=PerEpoch()
    )


def test_the_learning_rate_is_halved_whenever_an_epoch_was_worse() -> None:
    policy = Policy(optimizer="sgd", hyper={"lr": 0.001})
    single = Plateau(policy=policy)

    def epoch(k: int, before: float, after: float, *, accepted: bool) -> Fared:
        return Fared(k=k, policy=policy, before=before, after=after, accepted=accepted)

    better, refused = epoch(1, 2.0, 1.9, accepted=True), epoch(2, 1.9, 1.9, accepted=False)
    not_backed_off = epoch(3, 1.9, 1.95, accepted=True)
    past = [better, refused, not_backed_off]
    for epochs, rate in enumerate((0.001, 0.001, 0.0005, 0.00025)):
        assert single(ask(epochs + 1, past=past[:epochs])).hyper["lr"] == pytest.approx(rate)


def test_the_network() -> None:
    """ "6 hidden layers and one softmax output layer with 5,000 states. There are 1,024 units in the first 5 hidden
    layers and 512 units in the last hidden layer. Sigmoid activation functions are used for all hidden units except
    the bottom 3 hidden layers in which ReLU functions are used. … 9 consecutive 40-dimensional" features."""
    layers = [*paper_network()]
    linear, active = layers[0::2], layers[1::2]
    assert linear[0].in_features == 9 * 40
    assert [layer.out_features for layer in linear] == [1024, 1024, 1024, 1024, 1024, 512, 5000]
    assert [type(layer).__name__ for layer in active] == ["ReLU"] * 3 + ["Sigmoid"] * 3


@pytest.mark.parametrize(
    ("arm", "loss", "top", "wer", "wer_top"),
    [
        ("single", 2.082, None, 17.4, None),
        ("population", 2.029, (2.029, 2.062), 17.1, (16.9, 17.6)),
        ("no_evolution", 2.036, (2.036, 2.075), 17.4, (17.1, 17.7)),
        ("esgd", 1.916, (1.916, 1.920), 16.4, (16.2, 16.4)),
    ],
)
def test_table_1(arm: str, loss: float, top: Any, wer: float, wer_top: Any) -> None:
    row = study("mini").published[arm]
    assert (row["loss"], row.get("loss_top"), row["wer"], row.get("wer_top")) == (loss, top, wer, wer_top)
