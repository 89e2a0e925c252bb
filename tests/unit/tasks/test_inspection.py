"""One look at the data before training: every fault is named, sound data get no note."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from esgd import Supervised
from esgd.tasks import samples

N = 60


def inputs(samples: int = N, seed: int = 0) -> Tensor:
    return torch.randn(samples, 4, generator=torch.Generator().manual_seed(seed))


def labels(samples: int = N) -> Tensor:
    return torch.arange(samples) % 3


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3))


def classifier(**changes: Any) -> Supervised:
    given = {"train": (inputs(), labels()), "fitness": (inputs(seed=1), labels()), "test": (inputs(seed=2), labels())}
    return Supervised(network, F.cross_entropy, **{**given, **changes})


def regression(y: Tensor, loss: Any = F.mse_loss, outputs: int = 1) -> Supervised:
    return Supervised(lambda: nn.Linear(4, outputs), loss, train=(inputs(), y), fitness=(inputs(seed=1), y))


def found(task: Supervised) -> dict[str, str]:
    return dict(task.look(task.model()))


class Listed(Dataset[Any]):
    """A dataset that counts what is read."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.read = x, y, list[int]()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.read.append(index)
        return self.x[index], self.y[index]


def test_sound_data_get_no_note() -> None:
    assert found(classifier()) == {}
    assert found(classifier(train=Listed(inputs(), labels()))) == {}
    assert found(regression(inputs(seed=3)[:, :1])) == {}


def test_inputs_of_no_usual_scale_are_noted() -> None:
    for factor, words in ((1e-3, "no larger than 0.00"), (1e3, "as large as")):
        text = found(classifier(train=(inputs() * factor, labels())))["scale"]
        assert words in text
        assert "esgd.scaled(task)" in text


def test_features_of_different_scales_are_noted() -> None:
    x = inputs() * torch.tensor([0.01, 1.0, 100.0, 3e4])
    assert "differ in scale" in found(classifier(train=(x, labels())))["scale"]


def test_a_feature_that_never_changes_is_no_fault_but_an_input_that_never_changes_is() -> None:
    x = inputs()
    x[:, 0] = 0.0
    assert found(classifier(train=(x, labels()))) == {}
    assert "cannot tell the samples apart" in found(classifier(train=(torch.ones(N, 4), labels())))["constant_inputs"]


@pytest.mark.parametrize("first", [nn.BatchNorm1d(4), nn.LayerNorm(4)])
def test_the_scale_of_inputs_is_no_fault_where_the_first_layer_takes_it_out(first: nn.Module) -> None:
    data = (inputs() * 1e4, labels())
    task = Supervised(lambda: nn.Sequential(first, nn.Linear(4, 3)), F.cross_entropy, train=data, fitness=data)
    assert found(task) == {}


@pytest.mark.parametrize("loss", [F.mse_loss, nn.L1Loss(), nn.SmoothL1Loss()])
def test_targets_far_from_what_a_new_network_answers_are_noted(loss: Any) -> None:
    text = found(regression(2e5 + 1e5 * inputs(seed=3)[:, :1], loss))["targets"]
    assert "2e+05 ± " in text
    assert "esgd.scaled(task)" in text
    assert "targets" in found(regression(1e-4 * inputs(seed=3)[:, :1], loss))


def test_targets_that_never_change_are_noted() -> None:
    assert "nothing to learn" in found(regression(torch.ones(N, 1)))["constant_targets"]
    assert "constant_targets" in found(classifier(train=(inputs(), torch.zeros(N, dtype=torch.long))))


def test_targets_of_another_shape_than_the_output_are_noted() -> None:
    text = found(regression(inputs(seed=3)[:, 0]))["shapes"]
    assert "(3, 1)" in text
    assert "(3,)" in text
    assert "y[:, None]" in text


@pytest.mark.parametrize("at", [0, 17, 59])
def test_nan_in_a_dataset_is_named_with_its_index(at: int) -> None:
    x = inputs()
    x[at, 2] = torch.nan
    text = found(classifier(train=Listed(x, labels())))["nan"]
    assert "In train, input 0" in text
    assert f"the first at index {at}." in text


def test_a_large_dataset_is_not_read_whole_and_the_note_says_so() -> None:
    x = inputs(1000)
    x[:] = torch.nan
    data = Listed(x, labels(1000))
    text = found(classifier(train=data))["nan"]
    assert len(data.read) == samples.READ
    assert data.read == sorted(data.read)
    assert "of the 128 of its 1,000 samples that were looked at" in text


def test_of_large_tensors_some_samples_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "NUMBERS", 50)
    monkeypatch.setattr(samples, "FEWEST", 5)
    text = found(classifier(train=(torch.ones(N, 4), labels())))["constant_inputs"]
    assert "the 10 of its 60 samples that were looked at" in text


@pytest.mark.parametrize("label", [-100, 2])
def test_the_label_that_the_loss_ignores_is_no_class(label: int) -> None:
    y = labels() % 2
    y[7] = label
    data = {"train": (inputs(), y), "fitness": (inputs(seed=1), labels() % 2)}
    assert found(Supervised(network, nn.CrossEntropyLoss(ignore_index=label), **data)) == {}
    assert "classes" in found(Supervised(network, nn.CrossEntropyLoss(ignore_index=-5), **data))


def test_classes_that_are_absent_from_a_split_are_named() -> None:
    two = labels() % 2
    assert "1 of 3 classes of test are absent from train: 2." in found(classifier(train=(inputs(), two)))["classes"]
    text = found(classifier(fitness=(inputs(seed=1), two)))["classes"]
    assert "1 of 3 classes of train are absent from fitness: 2. Selection never sees" in text


def test_test_samples_that_were_trained_on_are_counted() -> None:
    x = inputs(seed=2)
    x[:20] = inputs()[:20]
    assert "20 of 60 inputs of test are in train, too" in found(classifier(test=(x, labels())))["duplicates"]
    assert "60 of 60 inputs of test are in fitness" in found(classifier(test=(inputs(seed=1), labels())))["duplicates"]


def test_samples_that_agree_in_part_are_no_duplicates() -> None:
    train, test = torch.zeros(N, 100), torch.zeros(N, 100)
    train[:, 1], test[:, 1] = torch.arange(N) / N, -1 - torch.arange(N) / N
    make = lambda: nn.Linear(100, 3)  # noqa: E731
    data = {"train": (train, labels()), "fitness": (train, labels()), "test": (test, labels())}
    assert "duplicates" not in dict(Supervised(make, F.cross_entropy, **data).look(make()))


def test_a_function_of_batches_is_not_called() -> None:
    def never() -> Any:
        raise AssertionError("called")

    assert found(classifier(train=never, fitness=never, test=never)) == {}


def test_a_look_uses_no_random_numbers_and_changes_nothing() -> None:
    task = Supervised(
        lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1)),
        F.mse_loss,
        train=Listed(inputs(), inputs(seed=3)[:, 0]),
        fitness=(inputs(seed=1), inputs(seed=3)[:, 0]),
    )
    made = task.model()
    before, weights = torch.get_rng_state(), {name: each.clone() for name, each in made.state_dict().items()}
    assert "shapes" in dict(task.look(made))
    assert torch.equal(torch.get_rng_state(), before)
    assert made.training
    assert all(torch.equal(each, weights[name]) for name, each in made.state_dict().items())


def test_what_fails_in_the_network_is_left_to_the_run_to_explain() -> None:
    y = inputs(seed=3)[:, :1]
    task = Supervised(lambda: nn.Linear(7, 1), F.mse_loss, train=(inputs(), y), fitness=(inputs(), y))
    assert found(task) == {}
