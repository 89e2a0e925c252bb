"""The guarantee: when it applies, when it is waived, and what is said when it breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from esgd.errors import FitnessError
from esgd.genome import Genome
from esgd.guarantee import check, check_start, why_waived
from esgd.operators import BestOf, Never, PerEpoch, PerGeneration
from esgd.population import Population
from esgd.recipe import Recipe

GENOME = Genome.of(nn.Linear(1, 1))


def fitness(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def population(*fitness: float) -> Population:
    founders = Population.founders(GENOME, torch.zeros(len(fitness), 2), {})
    return replace(founders, fitness=torch.tensor(fitness, dtype=torch.float64))


@pytest.mark.parametrize("backoff", [PerEpoch(), PerGeneration(), BestOf()])
def test_nothing_is_waived_with_certain_back_off_and_a_fitness_that_repeats(backoff: object) -> None:
    assert why_waived(Recipe(backoff=backoff), 0.25, 0.25) == ""


def test_two_infinite_or_two_unknown_scores_are_not_noise() -> None:
    assert why_waived(Recipe(), torch.inf, torch.inf) == ""
    assert why_waived(Recipe(), torch.nan, torch.nan) == ""


def test_a_noisy_fitness_is_explained_with_both_values_and_the_usual_suspects() -> None:
    reason = why_waived(Recipe(), 0.25, 0.2500001)
    for word in ("0.25 ", "0.2500001", "Theorem 1", "dropout", "augmentation", "non-deterministic"):
        assert word in reason


@pytest.mark.parametrize("backoff", [PerEpoch(probability=0.7), Never()])
def test_relaxed_back_off_waives_the_guarantee(backoff: object) -> None:
    assert "back-off is not certain" in why_waived(Recipe(backoff=backoff), 0.25, 0.25)


def test_elites_that_improve_or_stay_pass() -> None:
    check(fitness(0.3, 0.1, 0.2), fitness(0.1, 0.2, 9.0), 2, 1)


def test_an_elite_rank_that_rises_stops_the_run_with_its_values() -> None:
    before, after = fitness(0.3, 0.1, 0.2), fitness(0.21, 0.05, 0.3)
    check(before, after, 1, 7)
    with pytest.raises(FitnessError) as error:
        check(before, after, 3, 7)
    for words in ("generation 7", "rank 2 rose from 0.2 to 0.21", "Theorem 1", "esgd.testing"):
        assert words in str(error.value)


def test_a_start_in_which_everybody_diverged_is_refused_with_where_to_look() -> None:
    with pytest.raises(FitnessError, match="all 2 individuals .* Look for NaN in the fitness data"):
        check_start(population(torch.inf, torch.nan))
    check_start(population(torch.inf, 0.3))
