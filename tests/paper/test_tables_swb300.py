"""The paper's table of SWB300 hyper-parameters, cell by cell, and what §4.1 says in words."""

from __future__ import annotations

from typing import Any

import pytest

from esgd.operators import Elitist, Gaussian, PerEpoch, RandomStart
from esgd.policies import Policy
from esgd.species import Adam, Sgd, Uniform
from esgd.studies.study import Single
from esgd_paper.species.plateau import Plateau
from esgd_paper.swb300 import FRAMES, paper_network, study
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
        ("a_0", (SGD.lr.low, ADAM.lr.low), 1e-2, 5e-5),
        ("b_0", (SGD.lr.high, ADAM.lr.high), 3e-2, 1e-3),
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
    assert 0 < RECIPE.fine_tuning.lr < 0.9**15 * 3e-2
    assert RECIPE.total_epochs == 20
    assert RECIPE.elite_count == 60
    assert RECIPE.backoff == PerEpoch(probability=1.0)
    assert RECIPE.survival == Elitist()
    assert RECIPE.start == RandomStart()


def test_the_single_baseline() -> None:
    """ "SGD with a batch size 128 without momentum for 20 epochs. The initial learning rate is … 0.025 for SWB300"."""
    single = study("paper").single
    assert single == Single(
        species=Plateau(policy=Policy(optimizer="sgd", hyper={"lr": 0.025}), patience=0, factor=0.5), backoff=PerEpoch()
    )


def test_the_network() -> None:
    """ "bi-directional long short-term memory (LSTM) networks with 4 LSTM layers. Each layer contains 1,024 cells with
    512 on each direction. On top of the LSTM layers, there is a linear bottleneck layer with 256 hidden units followed
    by a softmax output layer with 32,000 units. … The input dimensionality is 140"."""
    network = paper_network()
    lstm, bottleneck, output = network.lstm, network.bottleneck, network.output
    assert (lstm.input_size, lstm.num_layers, lstm.hidden_size, lstm.bidirectional) == (140, 4, 512, True)
    assert (bottleneck.in_features, bottleneck.out_features) == (1024, 256)
    assert (output.in_features, output.out_features) == (256, 32_000)


def test_the_unrolling() -> None:
    """ "The LSTMs are unrolled 21 frames"."""
    assert FRAMES == 21


@pytest.mark.parametrize(
    ("arm", "loss", "top", "swb", "swb_top", "ch", "ch_top"),
    [
        ("single", 1.648, None, 10.4, None, 18.5, None),
        ("population", 1.645, (1.645, 1.666), 10.4, (10.3, 10.7), 18.2, (18.2, 18.8)),
        ("no_evolution", 1.626, (1.626, 1.641), 10.3, (10.3, 10.7), 18.3, (18.0, 18.6)),
        ("esgd", 1.551, (1.551, 1.557), 10.0, (10.0, 10.1), 18.2, (18.0, 18.3)),
    ],
)
def test_table_1(arm: str, loss: float, top: Any, swb: float, swb_top: Any, ch: float, ch_top: Any) -> None:
    row = study("mini").published[arm]
    assert (row["loss"], row.get("loss_top")) == (loss, top)
    assert (row["swb_wer"], row.get("swb_wer_top")) == (swb, swb_top)
    assert (row["ch_wer"], row.get("ch_wer_top")) == (ch, ch_top)
