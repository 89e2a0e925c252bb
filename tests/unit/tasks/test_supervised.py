"""Supervised: the empirical risk of Eq. 3 as loss and fitness, settings, metrics, and what is refused."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from esgd import Supervised
from esgd.errors import TaskError
from esgd.randomness import Seeds
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, dropout_mlp, mlp, random_data

X, Y = random_data(300)
XY = (X, Y)


def fitness_of(task: Supervised, network: nn.Module) -> float:
    """The fitness as any engine takes it: sums of the parts over their samples."""
    with torch.no_grad():
        parts = [(float(task.fitness(network.eval(), batch)), task.size(batch)) for _, batch in task.parts()]
    return sum(total for total, _ in parts) / sum(size for _, size in parts)


def task(loss: Any = F.cross_entropy, **changes: Any) -> Supervised:
    return Supervised(changes.pop("make_model", mlp), loss, **{"train": XY, "fitness": XY, **changes})


def regression(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target)


MULTI = (torch.rand(300, CLASSES, generator=Seeds(0)("multi")) < 0.5).float()
SUMS = X.sum(dim=1, keepdim=True).expand(300, CLASSES).contiguous()


@pytest.mark.parametrize(
    ("loss", "y", "whole"),
    [
        (F.cross_entropy, Y, F.cross_entropy),
        (nn.CrossEntropyLoss(label_smoothing=0.1), Y, partial(F.cross_entropy, label_smoothing=0.1)),
        (nn.CrossEntropyLoss(reduction="none"), Y, F.cross_entropy),
        (F.mse_loss, SUMS, F.mse_loss),
        (nn.MSELoss(reduction="none"), SUMS, F.mse_loss),
        (F.binary_cross_entropy_with_logits, MULTI, F.binary_cross_entropy_with_logits),
    ],
    ids=["classes", "smoothed", "per sample", "regression", "regression per element", "multi-label"],
)
def test_the_fitness_is_the_mean_loss_over_all_samples(loss: Any, y: Tensor, whole: Any) -> None:
    network = mlp()
    made = task(loss, train=(X, y), fitness=(X, y))
    with torch.no_grad():
        expected = whole(network(X).double(), y.double() if y.is_floating_point() else y)
    assert fitness_of(made, network) == pytest.approx(float(expected), rel=1e-5)
    training = made.loss(network, (X, y))
    assert training.dim() == 0
    assert float(training.detach()) == pytest.approx(float(expected), rel=1e-5)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.layer(x) * scale[:, None]


def test_a_network_may_take_several_inputs() -> None:
    data = (X, torch.full((300,), 2.0), Y)
    network = TwoInputs()
    made = task(make_model=TwoInputs, train=data, fitness=data)
    with torch.no_grad():
        expected = float(F.cross_entropy(2 * network.layer(X), Y))
    assert fitness_of(made, network) == pytest.approx(expected, rel=1e-5)


class TakesADict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, CLASSES)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.layer(inputs["x"])


class Dicts(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return {"x": X[index]}, Y[index]


def test_an_input_may_be_a_dict_of_tensors() -> None:
    network = TakesADict()
    made = task(make_model=TakesADict, train=Dicts(), fitness=Dicts())
    with torch.no_grad():
        expected = float(F.cross_entropy(network.layer(X[:20]), Y[:20]))
    assert fitness_of(made, network) == pytest.approx(expected, rel=1e-5)


def test_an_input_may_be_a_dict_in_the_test_split_too() -> None:
    made = task(make_model=TakesADict, train=Dicts(), fitness=Dicts(), test=Dicts())
    assert made.test(TakesADict())["loss"] > 0


# The loss


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda output, y: float(F.cross_entropy(output, y)), ["returned float", "torch tensor that gradients"]),
        (lambda output, y: torch.zeros(3), ["shape (3,)", "batch of 38", "one value per sample"]),
        (lambda output, y: F.cross_entropy(output, y)[None], ["shape (1,)", "scalar mean"]),
        (lambda output, y: None, ["returned NoneType None"]),
    ],
    ids=["a float", "a wrong shape", "a vector of one", "nothing"],
)
def test_a_loss_of_the_wrong_kind_is_refused_with_what_it_returned(loss: Any, words: list[str]) -> None:
    made = task(loss)
    with torch.no_grad(), pytest.raises(TaskError) as error:
        made.fitness(mlp(), (X[:38], Y[:38]))
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize(
    ("loss", "known"),
    [
        (F.cross_entropy, True),
        (nn.MSELoss(), True),
        (partial(F.cross_entropy, label_smoothing=0.1), True),
        (F.nll_loss, False),
        (lambda output, y: F.cross_entropy(output, y), False),
    ],
)
def test_only_losses_known_to_be_nonnegative_may_be_aborted_early(loss: Any, known: bool) -> None:
    assert task(loss).nonnegative is known
    assert task(loss, nonnegative=not known).nonnegative is not known


# A fitness of one's own


def error_rate(network: nn.Module) -> float:
    return 1 - float((network(X).argmax(dim=1) == Y).float().mean())


@pytest.mark.parametrize(
    "own", [error_rate, lambda net: torch.tensor(0.25), lambda net: 1], ids=["float", "tensor", "int"]
)
def test_a_function_of_the_network_is_the_fitness_and_is_taken_once(own: Any) -> None:
    made, network = task(fitness=own), mlp()
    assert len(list(made.parts())) == 1
    assert fitness_of(made, network) == float(own(network))
    assert not made.nonnegative


@pytest.mark.parametrize("value", [None, torch.zeros(3), "good"], ids=["nothing", "a vector", "a word"])
def test_a_fitness_of_ones_own_that_is_no_number_is_refused_with_what_it_returned(value: Any) -> None:
    with pytest.raises(TaskError, match="fitness"):
        fitness_of(task(fitness=lambda network: value), mlp())


def test_a_fitness_of_two_arguments_is_refused() -> None:
    with pytest.raises(TaskError, match="takes 2 arguments.*a number to minimise"):
        task(fitness=F.cross_entropy)


def test_a_function_without_arguments_returns_batches() -> None:
    made, network = task(fitness=lambda: [XY]), mlp()
    assert fitness_of(made, network) == pytest.approx(fitness_of(task(), network))


# Settings


def test_a_policys_batch_size_replaces_the_tasks() -> None:
    made = task(batch_size=100)
    assert [len(batch[-1]) for batch in made.batches(Seeds(0), {})] == [100] * 3
    assert [len(batch[-1]) for batch in made.batches(Seeds(0), {"batch_size": 150})] == [150] * 2
    assert (made.steps({}), made.steps({"batch_size": 150})) == (3, 2)


@given(st.integers(1, 100), st.integers(1, 40))
def test_steps_is_the_number_of_batches(samples: int, batch_size: int) -> None:
    made = task(train=(X[:samples], Y[:samples]), batch_size=batch_size)
    assert made.steps({}) == len(list(made.batches(Seeds(0), {})))


def test_steps_of_a_stream_are_not_known() -> None:
    assert task(train=lambda: [XY]).steps({}) is None


def test_dropout_is_set_for_a_policy_and_taken_back_for_the_next() -> None:
    made, network = task(make_model=dropout_mlp), dropout_mlp()
    made.prepare(network, {"dropout": 0.7})
    assert network[2].p == 0.7
    made.prepare(network, {"batch_size": 8})
    assert network[2].p == 0.3


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(TaskError, match="'batchsize' means nothing.*Did you mean 'batch_size'?"):
        task().prepare(mlp(), {"batchsize": 8})


@pytest.mark.parametrize(
    ("make_model", "settings"),
    [
        (mlp, {"dropout": 0.3}),
        (dropout_mlp, {"dropout": 1.5}),
        (mlp, {"batch_size": 0}),
        (mlp, {"batch_size": 8.23}),
        (mlp, {"batch_size": "big"}),
    ],
    ids=["dropout without a layer", "no probability", "zero", "a fraction", "a word"],
)
def test_a_setting_that_cannot_be_applied_is_refused(make_model: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match=next(iter(settings))):
        task(make_model=make_model).prepare(make_model(), settings)


# The other splits


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(dim=1) == target).float().mean()


def test_metrics_are_means_over_the_test_split() -> None:
    test, network = random_data(1500, seed=3), mlp()
    found = task(test=test, metrics={"accuracy": accuracy}).test(network)
    with torch.no_grad():
        assert found["accuracy"] == pytest.approx(float(accuracy(network(test[0]), test[1])), rel=1e-5)
        assert found["loss"] == pytest.approx(float(F.cross_entropy(network(test[0]), test[1])), rel=1e-5)


def test_without_a_test_split_there_are_no_metrics() -> None:
    assert task().test(mlp()) == {}


def test_calibration_is_the_beginning_of_the_training_set() -> None:
    batches = list(task().calibration(100))
    assert torch.equal(torch.cat([batch[0] for batch in batches]), X[: sum(len(batch[0]) for batch in batches)])
    assert 100 <= sum(len(batch[0]) for batch in batches) < 200


def test_calibration_may_have_data_of_its_own_and_is_never_longer_than_it() -> None:
    clean = random_data(50, seed=4)
    (batch,) = task(calibration=clean).calibration(10_000)
    assert torch.equal(batch[0], clean[0])


def test_parts_are_small_enough_to_stop_early_and_large_enough_to_be_fast() -> None:
    sizes = {
        samples: [len(batch[-1]) for _, batch in task(fitness=random_data(samples)).parts()]
        for samples in (50, 300, 2000)
    }
    assert sizes[50] == [50]
    assert max(sizes[300]) == 64
    assert len(sizes[2000]) == 8


# Construction


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"make_model": mlp()}, "make_model is a Sequential, a network.*lambda: Sequential"),
        ({"make_model": "mlp"}, "make_model='mlp' cannot be called"),
        ({"loss": 0.5}, "loss=0.5 cannot be called"),
        ({"batch_size": 0}, "batch_size=0 is not a positive whole number"),
        ({"batch_size": 2.5}, "batch_size=2.5 is not a positive whole number"),
        ({"fitness": None}, "fitness is a NoneType"),
        ({"test": (X, Y[:3])}, r"test has tensors of \[300, 3\] samples"),
    ],
)
def test_wrong_arguments_are_refused_at_construction(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task(**arguments)


def test_a_network_as_fitness_is_refused() -> None:
    with pytest.raises(TaskError):
        task(fitness=mlp())


def test_it_prints_the_sizes_of_its_splits() -> None:
    assert repr(task(test=lambda: [XY])) == "Supervised(train 300, fitness 300, test stream, batch_size=32)"


def test_the_manifest_can_tell_two_data_sets_apart() -> None:
    described = task(fitness=error_rate, test=lambda: [XY]).describe()
    assert json.loads(json.dumps(described)) == described
    assert described["fitness"] == {"kind": "error_rate"}
    assert described["test"] == {"kind": "stream"}
    assert described["train"]["sha256"] != task(train=random_data(300, seed=9)).describe()["train"]["sha256"]


def test_a_network_that_writes_into_its_input_leaves_the_test_split_alone() -> None:
    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(0.5)

    x, y = random_data(30, seed=2)
    before = x.clone()
    task, network = classify(test=(x, y)), nn.Sequential(Writing(), mlp())
    assert task.test(network) == task.test(network)
    assert torch.equal(x, before)


class Nine(IterableDataset[Any]):
    """Nine samples in an order of its own."""

    def __iter__(self) -> Any:
        return iter(zip(X[:9], Y[:9], strict=True))


@pytest.mark.parametrize(
    "train",
    [lambda: [(X[:8], Y[:8]), (X[8:9], Y[8:9])], Nine(), DataLoader(TensorDataset(X, Y), batch_sampler=[[0, 1], [2]])],
    ids=["function", "iterable", "batch sampler"],
)
def test_a_last_batch_of_one_sample_under_batchnorm_is_refused_with_what_leaves_it_out(train: Any) -> None:
    made = task(make_model=batchnorm_mlp, train=train, batch_size=None if isinstance(train, DataLoader) else 8)
    (alone,) = [batch for batch in made.batches(Seeds(0), {}) if made.size(batch) == 1]
    with pytest.raises(TaskError, match=r"drop_last=True.*the last batch has two samples or more"):
        made.loss(made.model(), alone)


def test_batch_size_one_under_batchnorm_is_refused_with_a_larger_one() -> None:
    made = task(make_model=batchnorm_mlp, batch_size=1)
    with pytest.raises(TaskError, match="Use batch_size ≥ 2"):
        made.loss(made.model(), next(iter(made.batches(Seeds(0), {}))))
