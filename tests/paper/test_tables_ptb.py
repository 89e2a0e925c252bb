"""Supplement D, table "Hyper-parameters of ESGD for Penn Treebank", cell by cell; and the PTB rows of table 1."""

from __future__ import annotations

from typing import Any

import pytest

from esgd.operators import Gaussian, PerGeneration, Perturbed, Roulette
from esgd.report.arms import BASELINE
from esgd.species import Adam, Choice, Integers, Sgd, Uniform
from esgd_paper.ptb import study
from tests.small import ask

STUDY = study("paper")
RECIPE = STUDY.recipe
POOL: Any = RECIPE.species
SGD, ADAM = POOL.species.species

MODELS = {"FD": "fraternal", "ELD": "expectation_linear", "PM": "pi", "Standard": "standard"}

BOTH = {
    "μ": (lambda: RECIPE.population, 100),
    "λ": (lambda: RECIPE.offspring, 400),
    "ρ": (lambda: RECIPE.mate_weights, {1: 0.5, 2: 0.5}),
    "K_s": (lambda: RECIPE.sgd_epochs, 20),
    "K_v": (lambda: RECIPE.evolution_steps, 1),
    "σ_0": (lambda: RECIPE.mutation, Gaussian(sigma=(0.01, 0.15))),
    "fitness smoothing": (lambda: RECIPE.mating, Roulette(smoothing=0.5)),
    "patience": (lambda: POOL.patience, Integers(3, 10)),
    "p_backoff": (lambda: RECIPE.backoff, PerGeneration(probability=0.7)),
}


@pytest.mark.parametrize("cell", BOTH)
def test_a_cell_that_is_not_the_optimizers(cell: str) -> None:
    found, printed = BOTH[cell]
    assert found() == printed


OF_EACH = {
    "a_0": (lambda pool: pool.lr.low, 1, 1e-6),
    "b_0": (lambda pool: pool.lr.high, 60, 1e-3),
    "γ": (lambda pool: pool.gamma, 0.33, 0.33),
    "dropout_embedding": (lambda pool: pool.settings["dropout_embedding"], *[Uniform(0.05, 0.2)] * 2),
    "dropout_hidden": (lambda pool: pool.settings["dropout_hidden"], *[Uniform(0.1, 0.65)] * 2),
    "dropout_LSTM weights": (lambda pool: pool.settings["dropout_weights"], *[Uniform(0.1, 0.65)] * 2),
    "model_dropout": (lambda pool: pool.settings["dropout_model"], *[Choice(tuple(MODELS.values()))] * 2),
    "weight decay": (lambda pool: pool.hyper["weight_decay"], *[Uniform(0, 1.2e-5)] * 2),
    "mini batch": (lambda pool: pool.settings["batch_size"], *[Integers(20, 64)] * 2),
}


@pytest.mark.parametrize("cell", OF_EACH)
def test_a_cell_of_sgd_and_of_adam(cell: str) -> None:
    found, sgd, adam = OF_EACH[cell]
    assert found(SGD) == sgd
    assert found(ADAM) == adam


def test_the_columns_are_sgd_and_adam() -> None:
    assert (type(SGD), type(ADAM)) == (Sgd, Adam)


def test_momentum_and_nesterov() -> None:
    """p_momentum 0.8, p_Nesterov 0.5 of SGD and 0 of ADAM, momentum [0.1, 0.9]; ADAM's is β_1, which is fixed."""
    assert SGD.momentum_probability == 0.8
    assert SGD.nesterov_probability == 0.5
    assert SGD.momentum == Uniform(0.1, 0.9)
    assert set(ADAM(ask()).hyper) == {"lr", "weight_decay"}
    assert ADAM(ask()).optimizer == "adam"


@pytest.mark.parametrize("k", [1, 2, 15])
def test_ranges_and_mutation_are_annealed(k: int) -> None:
    """a_k = γ^k a_0, b_k = γ^k b_0, σ_k = σ_0 / k."""
    for pool, low, high in ((SGD, 1, 60), (ADAM, 1e-6, 1e-3)):
        drawn = [pool(ask(k, j, generations=15)).hyper["lr"] / 0.33**k for j in range(200)]
        assert low <= min(drawn) < max(drawn) <= high
        assert max(drawn) - min(drawn) > 0.9 * (high - low)
    strengths = [RECIPE.mutation.strength(k, ask(k, j).seeds("σ")) * k for j in range(200)]
    assert 0.01 <= min(strengths) < 0.03
    assert 0.13 < max(strengths) <= 0.15


def test_what_the_text_says() -> None:
    """ "Elitism to 60%", "15 generations", "initialized by mutation of baseline model", "the baseline was specifically
    added to the population before the evolutionary step"; models are trained for 300 epochs, the single one for 574."""
    assert RECIPE.elite_count == 60
    assert RECIPE.generations == 15
    assert RECIPE.start == Perturbed(network=BASELINE, sigma=(0.01, 0.15))
    assert RECIPE.immigrants == (BASELINE,)
    assert RECIPE.total_epochs == 300
    assert STUDY.baseline is not None
    assert STUDY.baseline.total_epochs == 574


@pytest.mark.parametrize(
    ("arm", "valid", "test"),
    [
        ("single", (67.27,), (64.58,)),
        ("population", (66.58, 66.58, 68.04), (63.96, 63.96, 64.58)),
        ("no_evolution", (67.27, 67.27, 79.25), (64.58, 64.58, 76.64)),
        ("esgd", (66.29, 66.29, 66.30), (63.73, 63.72, 63.74)),
    ],
)
def test_table_1(arm: str, valid: tuple[float, ...], test: tuple[float, ...]) -> None:
    for column, (best, *top) in (("valid_ppl", valid), ("ppl", test)):
        assert STUDY.published[arm][column] == best
        assert STUDY.published[arm].get(f"{column}_top", ()) == tuple(top)
