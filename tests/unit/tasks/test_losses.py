"""What a constant answer costs: the best one that torch itself finds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.tasks.losses import compares_numbers, constant_loss
from tests.small import classify, random_data


def best_constant(loss: Any, answer: Tensor, targets: Tensor, steps: int = 400) -> float:
    """The lowest loss of one answer for all samples, by gradients."""
    answer = answer.clone().requires_grad_()
    optimizer, lowest = torch.optim.Adam([answer], lr=0.02), float("inf")
    for _ in range(steps):
        value = loss(answer.expand(len(targets), *answer.shape), targets).mean()
        lowest = min(lowest, float(value.detach()))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return lowest


NUMBERS = torch.randn(41, 2, generator=torch.Generator().manual_seed(0)).exp()
YES_OR_NO = (NUMBERS > 1).float()


@pytest.mark.parametrize("loss", [F.mse_loss, nn.MSELoss(), F.l1_loss, nn.MSELoss(reduction="none")])
def test_of_numbers(loss: Any) -> None:
    assert constant_loss(loss, NUMBERS) == pytest.approx(best_constant(loss, torch.ones(2), NUMBERS), rel=1e-3)


@pytest.mark.parametrize("loss", [nn.HuberLoss(), partial(F.smooth_l1_loss, beta=0.5)])
def test_of_losses_between_squared_and_absolute_it_is_nearly_the_best(loss: Any) -> None:
    best, known = best_constant(loss, torch.ones(2), NUMBERS), constant_loss(loss, NUMBERS)
    assert known is not None
    assert best * 0.999 <= known <= best * 1.1


def test_of_yes_and_no() -> None:
    best = best_constant(F.binary_cross_entropy_with_logits, torch.zeros(2), YES_OR_NO)
    assert constant_loss(nn.BCEWithLogitsLoss(), YES_OR_NO) == pytest.approx(best, rel=1e-3)


def test_of_classes() -> None:
    labels = random_data(70)[1]
    assert constant_loss(F.cross_entropy, labels) == pytest.approx(
        best_constant(F.cross_entropy, torch.zeros(3), labels), rel=1e-3
    )
    assert constant_loss(F.cross_entropy, torch.zeros(5, dtype=torch.long)) == 0


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (lambda output, target: output.mean(), NUMBERS),
        (nn.CrossEntropyLoss(weight=torch.ones(3)), torch.tensor([0, 1, 2])),
        (nn.CrossEntropyLoss(label_smoothing=0.1), torch.tensor([0, 1, 2])),
        (partial(F.cross_entropy, ignore_index=0), torch.tensor([0, 1, 2])),
        (F.cross_entropy, torch.tensor([0, -100, 2])),
        (F.mse_loss, torch.tensor([0, 1])),
    ],
)
def test_what_is_not_known_is_none(loss: Any, targets: Tensor) -> None:
    assert constant_loss(loss, targets) is None


def test_a_task_knows_it_for_its_fitness_split() -> None:
    labels = random_data(70, seed=1)[1]
    assert classify().constant_fitness() == constant_loss(F.cross_entropy, labels)
    assert classify(fitness=lambda module: 1.0).constant_fitness() is None
    assert classify(fitness=lambda: [random_data(70, seed=1)]).constant_fitness() is None


def test_regression_is_known_by_its_loss() -> None:
    assert compares_numbers(partial(F.huber_loss, delta=2.0))
    assert not compares_numbers(F.binary_cross_entropy)
