"""Mutation: what is added to an offspring."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from esgd.errors import RecipeError
from esgd.genome import Genome
from esgd.operators import Gaussian, RelativeGaussian
from esgd.randomness import Seeds
from tests.small import batchnorm_mlp


@pytest.fixture
def genome() -> Genome:
    """Two tensors: 2,000 weights and 100 biases."""
    return Genome.of(nn.Linear(20, 100))


def test_the_same_noise_falls_on_every_parameter(genome: Genome) -> None:
    row = torch.arange(genome.size, dtype=torch.float32)
    noise = Gaussian()(row, 0.5, Seeds(0)(), genome) - row
    for where in genome.slices():
        assert float(noise[where].std()) == pytest.approx(0.5, rel=0.2)
        assert float(noise[where].mean()) == pytest.approx(0, abs=0.15)


def test_relative_noise_follows_the_size_of_each_tensor(genome: Genome) -> None:
    weights, biases = genome.slices()
    row = torch.ones(genome.size)
    row[weights] = 3.0
    row[biases] = -0.01
    noise = RelativeGaussian()(row, 0.1, Seeds(0)(), genome) - row
    assert float(noise[weights].std()) == pytest.approx(0.3, rel=0.1)
    assert float(noise[biases].std()) == pytest.approx(0.001, rel=0.2)


@pytest.mark.parametrize("mutation", [Gaussian(), RelativeGaussian()], ids=str)
def test_the_parent_is_left_alone_and_the_generator_decides(mutation: Any, genome: Genome) -> None:
    row = torch.ones(genome.size)
    first, again, other = (mutation(row, 0.1, Seeds(seed)(), genome) for seed in (0, 0, 1))
    assert torch.equal(row, torch.ones(genome.size))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.dtype == row.dtype


def test_double_precision_stays_double() -> None:
    genome = Genome.of(nn.Linear(2, 2).double())
    for mutation in (Gaussian(), RelativeGaussian()):
        assert mutation(torch.ones(6, dtype=torch.float64), 0.1, Seeds(0)(), genome).dtype == torch.float64


@pytest.mark.parametrize("cls", [Gaussian, RelativeGaussian])
def test_strength_is_annealed_with_the_generation(cls: Any) -> None:
    assert [cls(sigma=0.12).strength(k, Seeds(0)()) for k in (1, 2, 3)] == [0.12, 0.06, 0.12 / 3]
    assert cls(sigma=0).strength(1, Seeds(0)()) == 0


def test_a_range_reaches_from_end_to_end() -> None:
    drawn = sorted(Gaussian(sigma=(0.01, 0.15)).strength(1, Seeds(0)(i)) for i in range(500))
    assert 0.01 <= drawn[0] < 0.015
    assert 0.145 < drawn[-1] <= 0.15


def test_buffers_are_not_part_of_a_row() -> None:
    """What is mutated is a row, and statistics do not lie in it."""
    network = batchnorm_mlp()
    assert Genome.of(network).size == sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize("cls", [Gaussian, RelativeGaussian])
@pytest.mark.parametrize("sigma", [-0.1, nan, inf, "x", True, (0.2, 0.1), (-1, 1), (0, inf), (1, 2, 3)])
def test_what_is_not_a_standard_deviation_is_refused(cls: Any, sigma: Any) -> None:
    with pytest.raises(RecipeError, match="A mutation strength σ_0 is a standard deviation ≥ 0.*Use 0.01") as caught:
        cls(sigma=sigma)
    assert f"sigma={sigma!r}" in str(caught.value)


@pytest.mark.parametrize("cls", [Gaussian, RelativeGaussian])
def test_a_numpy_strength_is_kept_as_pythons_own_number_so_that_it_can_be_written_down(cls: Any) -> None:
    assert type(cls(sigma=np.float32(0.5)).sigma) is float
    assert [type(end) for end in cls(sigma=(np.float64(0.1), np.int64(1))).sigma] == [float, int]
