"""Metrics: which kinds there are, and what is measured of the network as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
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


class Accumulating:
    """A metric of which one method fails."""

    def __init__(self, failing: str) -> None:
        self.failing = failing

    def _call(self, name: str) -> float:
        return 1 / (0 if name == self.failing else 1)

    def reset(self) -> None:
        self._call("reset")

    def update(self, output: Any, target: Any) -> None:
        self._call("update")

    def compute(self) -> float:
        return self._call("compute")


@pytest.mark.parametrize(
    "metric",
    [
        lambda output, target: 1 / 0,
        averaged(lambda output, target: 1 / 0),
        lambda network: 1 / 0,
        *map(Accumulating, ("reset", "update", "compute")),
    ],
    ids=["whole", "averaged", "network", "reset", "update", "compute"],
)
def test_a_metric_that_raises_is_named_and_the_exception_keeps_its_type(metric: Any) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        task(good=error_rate, bad=metric).test(network())
    assert caught.value.__notes__ == [
        "Raised by the metric 'bad' of the task. Call it by hand on one batch to see why."
    ]


def test_a_metric_that_selects_and_raises_is_named_where_a_network_cannot_be_scored() -> None:
    made = Supervised(
        network,
        F.cross_entropy,
        train=(X, Y),
        fitness=(X, Y),
        metrics={"bad": averaged(lambda output, target: 1 / 0)},
        select="bad",
    )
    with pytest.raises(TaskError, match="cannot be scored: ZeroDivisionError: ") as caught:
        esgd.fit(made, esgd.Recipe(population=2), seed=0, engine="loop", progress=False)
    assert any(note.startswith("Raised by the metric 'bad'") for note in caught.value.__notes__)


@pytest.mark.parametrize("metrics", [[error_rate], error_rate], ids=["list", "function"])
def test_metrics_without_names_are_refused_with_a_dict_of_them(metrics: Any) -> None:
    with pytest.raises(TaskError, match=r"metrics=.* has no name.*metrics=\{'error': error_rate\}"):
        Supervised(network, F.cross_entropy, train=(X, Y), fitness=(X, Y), metrics=metrics)


def test_a_module_dict_of_metrics_is_a_dict() -> None:
    class Loss(nn.Module):
        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return F.cross_entropy(output, target)

    metrics: Any = nn.ModuleDict({"again": Loss()})
    made = Supervised(network, F.cross_entropy, train=(X, Y), fitness=(X, Y), test=(X, Y), metrics=metrics)
    assert list(made.test(network())) == ["loss", "again"]
