"""Supplement C, "Hyper-parameters of ESGD for CIFAR10", cell by cell; what the text adds to it; and table 1."""

from __future__ import annotations

from typing import Any

import pytest

from esgd.operators import PerGeneration
from esgd.recipe import Recipe
from esgd.schedules import Moment
from esgd.species import Fixed
from esgd_paper.cifar10 import study
from tests.small import ask

STUDY = study("paper")
RECIPE = STUDY.recipe
BASE = {
    80: 0.1,
    121: 0.01,
    160: 0.001,
}  # "0.1 for the first 80 epochs, 0.01 for another 41 epochs, and 0.001 for the rest"

TABLE = {
    "μ": 128,
    "λ": 768,
    "ρ": 2,
    "K_s": 20,
    "K_v": 1,
    "a_k": 0.9,
    "b_k": 1.1,
    "momentum": 0.9,
    "σ_0": 0.01,
    "σ_k": [0.01 / k for k in range(1, 9)],
}


def cells(recipe: Recipe) -> dict[str, Any]:
    """What the recipe really does, under the symbols of the table."""
    drawn = [recipe.species(ask(k, j, generations=8)) for k in range(1, 9) for j in range(128)]
    factors = [policy.hyper["lr"] / 0.1 for policy in drawn]
    generator = ask().seeds("mutate")
    return {
        "μ": recipe.population,
        "λ": recipe.offspring,
        "ρ": recipe.mates,
        "K_s": recipe.sgd_epochs,
        "K_v": recipe.evolution_steps,
        "a_k": min(factors),
        "b_k": max(factors),
        "momentum": {policy.hyper["momentum"] for policy in drawn},
        "σ_0": recipe.mutation.sigma,
        "σ_k": [recipe.mutation.strength(k, generator) for k in range(1, 9)],
    }


@pytest.mark.slow
@pytest.mark.parametrize("symbol", TABLE)
def test_the_cell_is_the_papers(symbol: str) -> None:
    found, printed = cells(RECIPE)[symbol], TABLE[symbol]
    if symbol in ("a_k", "b_k"):  # ends of a range that is drawn from
        end = {"a_k": RECIPE.species.lr.low, "b_k": RECIPE.species.lr.high}[symbol]
        assert end / 0.1 == pytest.approx(printed)
        assert found == pytest.approx(printed, abs=2e-3)
        assert 0.9 - 1e-12 <= found <= 1.1 + 1e-12
    elif symbol == "momentum":
        assert found == {printed}
    else:
        assert found == pytest.approx(printed)


def rate(policy: Any, epoch: int) -> float:
    """The learning rate in a global epoch, counted from 0."""
    before = epoch // 20 * 20
    moment = Moment(epoch=epoch - before, epochs=20, before=before, total=160)
    return float(policy.hyper["lr"] * policy.schedule(moment))


@pytest.mark.parametrize("epoch", [0, 79, 80, 120, 121, 159])
def test_the_base_rate_is_the_footnotes_times_the_factor_of_the_individual(epoch: int) -> None:
    base = next(value for end, value in BASE.items() if epoch < end)
    policies = [RECIPE.species(ask(1 + epoch // 20, j, generations=8)) for j in range(50)]
    factors = [rate(policy, epoch) / base for policy in policies]
    assert all(0.9 - 1e-9 <= factor <= 1.1 + 1e-9 for factor in factors)
    assert len(set(factors)) == 50


def test_the_factor_is_drawn_for_every_individual_and_generation() -> None:
    drawn = {RECIPE.species(ask(k, j, generations=8)).hyper["lr"] for k in range(1, 9) for j in range(128)}
    assert len(drawn) == 8 * 128


def test_nesterov_is_always_on() -> None:
    """ "Always turn on Nesterov momentum and set it to be 0.9." """
    assert all(RECIPE.species(ask(k, j, generations=8)).hyper["nesterov"] for k in range(1, 9) for j in range(128))


def test_a_worse_model_always_rolls_back_to_the_previous_generation() -> None:
    assert RECIPE.backoff == PerGeneration(probability=1.0)


def test_sixty_percent_are_elites_and_all_epochs_are_those_of_the_single_baseline() -> None:
    assert RECIPE.elites == 0.6
    assert RECIPE.elite_count == 77  # of 128
    assert RECIPE.generations == 8
    assert RECIPE.total_epochs == 160


def test_the_single_baseline() -> None:
    """ "the initial learning rate is 0.1 and gets annealed by 10x after 81 epochs and then annealed by another 10x at
    epoch 122 … Nesterov acceleration with a momentum 0.9" (§4.2)."""
    assert isinstance(STUDY.single, Fixed)
    policy = STUDY.single(ask(1, generations=8))
    assert (policy.optimizer, policy.hyper["momentum"], policy.hyper["nesterov"]) == ("sgd", 0.9, True)
    rates = [rate(policy, epoch) for epoch in range(160)]
    assert rates == pytest.approx([0.1] * 81 + [0.01] * 41 + [0.001] * 38)


def test_the_population_baseline_draws_from_the_same_pool() -> None:
    assert STUDY.population == RECIPE.species


TABLE_1 = """
    single baseline      | 0.0176 | --                | 8.34 | --
    population baseline  | 0.0151 | [0.0151,  0.0164] | 8.24 | [7.90,  8.69]
    ESGD w/o evolution   | 0.0147 | [0.0147,  0.0166] | 8.49 | [7.86,  8.53]
    ESGD                 | 0.0142 | [0.0142,  0.0159] | 7.52 | [7.43,  8.10]
"""
ARMS = {
    "single baseline": "single",
    "population baseline": "population",
    "ESGD w/o evolution": "no_evolution",
    "ESGD": "esgd",
}
COLUMNS = ("loss", "loss_top", "error", "error_top")


def printed() -> dict[tuple[str, str], Any]:
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE_1.strip().splitlines()]
    return {(ARMS[row[0]], column): cell for row in rows for column, cell in zip(COLUMNS, row[1:], strict=True)}


@pytest.mark.parametrize(("arm", "column"), printed())
def test_table_1_is_published_as_printed(arm: str, column: str) -> None:
    cell = printed()[arm, column]
    if cell == "--":
        assert column not in STUDY.published[arm]
    elif cell.startswith("["):
        assert STUDY.published[arm][column] == tuple(float(end) for end in cell.strip("[]").split(","))
    else:
        assert STUDY.published[arm][column] == float(cell)


def test_nothing_else_is_published() -> None:
    assert {(arm, column) for arm, row in STUDY.published.items() for column in row} <= set(printed())
    assert study("mini").published == STUDY.published
