"""The shapes in the library's annotations are checked while the tests run: a wrong one cannot go unnoticed."""

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import nn

from esgd.genome import Genome
from esgd.operators import Elitist, intermediate
from esgd.operators.backoff import degraded
from esgd.population import Population


def test_a_row_where_a_matrix_is_due_is_caught() -> None:
    with pytest.raises(TypeCheckError, match="mates"):
        intermediate(torch.zeros(3))


def test_integers_where_a_fitness_is_due_are_caught() -> None:
    with pytest.raises(TypeCheckError, match="fitness"):
        Elitist()(torch.zeros(3, dtype=torch.int64), [], size=1, elites=1, generator=torch.Generator())


def test_two_lengths_under_one_name_are_caught() -> None:
    with pytest.raises(TypeCheckError, match="before"):
        degraded(torch.zeros(3), torch.zeros(4))


def test_a_population_with_more_fitness_values_than_rows_is_caught() -> None:
    genome = Genome.of(nn.Linear(1, 1))
    with pytest.raises(TypeCheckError, match="fitness"):
        Population(genome, torch.zeros(3, 2), {}, torch.zeros(4, dtype=torch.float64), (), (), ())
