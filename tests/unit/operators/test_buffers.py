"""Buffers of an offspring, and how BatchNorm statistics come about."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import esgd
from esgd.errors import RecipeError
from esgd.operators import Averaged, FromFittest, Never, Reestimated
from esgd.species import Sgd
from tests.small import INPUTS, batchnorm_mlp, classify, random_data

MATES = {
    "mean": torch.tensor([[1.0, 2.0], [3.0, 6.0]]),
    "count": torch.tensor([7, 100]),
    "mask": torch.tensor([[True, False], [False, False]]),
}


@pytest.mark.parametrize("rule", [Averaged(), Reestimated()], ids=str)
def test_floating_buffers_are_averaged_and_the_others_come_from_the_fittest(rule: Any) -> None:
    inherited = rule(MATES)
    assert inherited["mean"].tolist() == [2, 4]
    assert inherited["count"].item() == 7
    assert inherited["mask"].tolist() == [True, False]


def test_all_buffers_may_come_from_the_fittest() -> None:
    inherited = FromFittest()(MATES)
    assert inherited["mean"].tolist() == [1, 2]
    assert inherited["count"].item() == 7


@pytest.mark.slow
@pytest.mark.parametrize("evolution_steps", [0, 1])
@pytest.mark.parametrize("samples", [64, 4096])
def test_statistics_are_those_of_the_first_training_samples_for_everybody(evolution_steps: int, samples: int) -> None:
    """Parents and offspring alike: recompute by hand what the first layer's output looks like."""
    x, y = random_data(200)
    task = classify(batchnorm_mlp, train=(x, y))
    recipe = esgd.Recipe(
        population=4, generations=2, sgd_epochs=1, evolution_steps=evolution_steps, buffers=Reestimated(samples=samples)
    )
    *_, last = esgd.evolve(task, recipe, seed=0)
    seen = [x[:64]] if samples == 64 else [x]  # up to 256 samples are one piece
    for i in range(4):
        network = last.population[i].best.module()
        with torch.no_grad():
            hidden = [network[0](piece) for piece in seen]
        mean = torch.stack([h.mean(dim=0) for h in hidden]).mean(dim=0)
        variance = torch.stack([h.var(dim=0) for h in hidden]).mean(dim=0)
        torch.testing.assert_close(network[1].running_mean, mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(network[1].running_var, variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [Averaged(), FromFittest()], ids=str)
def test_without_re_estimation_statistics_are_those_that_training_left(rule: Any) -> None:
    """One SGD step of one batch with momentum 0.1 moves a fresh running mean by a tenth of the batch's."""
    x, y = random_data(16)
    task = classify(batchnorm_mlp, train=(x, y), batch_size=16)
    recipe = esgd.Recipe(
        population=1,
        mates=1,
        generations=1,
        sgd_epochs=1,
        evolution_steps=0,
        buffers=rule,
        backoff=Never(),
        species=Sgd(lr=0.0),
    )
    (generation,) = esgd.evolve(task, recipe, seed=0)
    network = generation.best.module()
    with torch.no_grad():
        torch.testing.assert_close(network[1].running_mean, 0.1 * network[0](x).mean(dim=0))
    assert network[1].num_batches_tracked == 1


def test_a_network_keeps_its_own_momentum_through_re_estimation() -> None:
    def slow() -> nn.Module:
        return nn.Sequential(nn.Linear(INPUTS, 4), nn.BatchNorm1d(4, momentum=0.01), nn.Linear(4, 3))

    (generation,) = esgd.evolve(classify(slow), esgd.Recipe(population=3, generations=1, sgd_epochs=1), seed=0)
    assert generation.best.module()[1].momentum == 0.01


@pytest.mark.parametrize("samples", [1, 0, -5])
def test_too_few_samples_for_a_variance_are_refused(samples: int) -> None:
    with pytest.raises(
        RecipeError, match=f"samples={samples} is below 2.*gives no variance.*Use 1024, or the rule Averaged"
    ):
        Reestimated(samples=samples)


def test_only_re_estimation_reads_training_samples() -> None:
    assert (Reestimated().samples, Averaged().samples, FromFittest().samples) == (1024, 0, 0)
