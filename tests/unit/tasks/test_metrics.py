"""Metrics: which kinds there are, and what is measured of the network as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd import Supervised
from esgd.errors import TaskError
from esgd.tasks import averaged, error_rate

X = torch.arange(12.0).view(6, 2)
Y = torch.tensor([0, 1, 0, 1, 0, 1])


def network() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2))


def task(**metrics: Any) -> Supervised:
    return Supervised(network, F.cross_entropy, train=(X, Y), fitness=(X, Y), test=(X, Y), metrics=metrics)


def test_the_error_rate_is_the_share_of_wrong_answers() -> None:
    output = torch.eye(10)[torch.tensor([1, 2, 3, 4])]
    assert float(error_rate(output, torch.tensor([1, 2, 3, 9]))) == 0.25


class Words:
    """A metric of the network with data of its own."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool]] = []

    def __call__(self, module: nn.Module) -> float:
        self.seen.append((module.training, module(X).requires_grad))
        return 0.25

    def describe(self) -> dict[str, Any]:
        return {"utterances": 3}


def test_a_metric_of_the_network_is_taken_once_in_eval_mode_without_gradients() -> None:
    words = Words()
    found = task(wer=words, error=error_rate).test(network().train())
    assert list(found) == ["loss", "error", "wer"]
    assert found["wer"] == 0.25
    assert words.seen == [(False, False)]


def test_what_a_metric_of_the_network_measures_on_belongs_to_the_identity_of_a_run() -> None:
    assert task(wer=Words()).describe()["wer"] == {"utterances": 3}
    assert task(train=Words()).describe()["train"]["kind"] == "tensors", "the data themselves are not hidden by a name"
    assert task(error=error_rate, size=lambda module: 1.0).describe() == task().describe()


def norm(output: Tensor, target: Any = None) -> Tensor:
    return output.norm()


def anything(*arguments: Any) -> float:
    return float(len(arguments))


@pytest.mark.parametrize(
    "metric", [norm, anything, nn.CrossEntropyLoss(), max], ids=["norm", "anything", "loss", "max"]
)
def test_what_can_be_called_with_output_and_target_is_of_a_split(metric: Any) -> None:
    assert task(metric=metric)._metrics.of_split == {"metric": metric}


def test_a_builtin_function_cannot_be_marked() -> None:
    with pytest.raises(TaskError, match="Write a function around it"):
        averaged(max)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (3, r"metrics\['metric'\]=3 cannot be used"),
        (lambda a, b, c: 0, "neither with .output, target. nor with the network"),
        (lambda: 0, "neither with .output, target. nor with the network"),
    ],
)
def test_what_cannot_be_a_metric_is_refused_by_name(metric: Any, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task(metric=metric)


def test_a_metric_may_return_several_numbers_by_name() -> None:
    def extremes(output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"low": output.min(), "high": output.max()}

    measured = task(extremes=extremes, error=error_rate)
    module = network()
    assert list(measured.test(module)) == ["loss", "low", "high", "error"]
    assert list(measured.fitness_metrics(module)) == ["low", "high", "error"]


@pytest.mark.parametrize("name", ["loss", "error", "size"])
def test_one_of_several_numbers_with_the_name_of_another_is_refused(name: str) -> None:
    with pytest.raises(TaskError, match=f"'both' returned a number for '{name}', which is the name of another one"):
        task(both=lambda output, target: {name: 1.0}, error=error_rate, size=lambda module: 2.0).test(network())


def test_selection_by_a_number_that_a_metric_does_not_return_is_refused() -> None:
    scores = {"f1": lambda output, target: {"F1": 1.0}}
    selecting = Supervised(network, F.cross_entropy, train=(X, Y), fitness=(X, Y), metrics=scores, select="f1")
    with pytest.raises(TaskError, match=r"select='f1' is not among what that metric returned\. Known: F1\."):
        selecting.fitness(network(), None)


def test_a_metric_that_returns_no_number_is_named() -> None:
    with pytest.raises(TaskError, match="the metric 'size' returned 'large', which is not one number"):
        task(size=lambda module: "large").test(network())


def test_one_of_several_numbers_that_is_none_is_named_with_its_metric() -> None:
    with pytest.raises(TaskError, match="the metric 'both' returned 'large' for 'size', which is not one number"):
        task(both=lambda output, target: {"size": "large"}).test(network())
