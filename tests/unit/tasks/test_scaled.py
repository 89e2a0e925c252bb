"""`scaled(task)`: the scales of the data are part of the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import esgd
from esgd import Supervised, scaled
from esgd.errors import TaskError

X = torch.randn(80, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1e-3, 1.0, 3e4]) + 5
Y = 2e5 + 1e5 * torch.tanh((X - X.mean(0)) / X.std(0)).sum(dim=1, keepdim=True)


class AsDataset(TensorDataset):
    """A subclass, so that it is read as a dataset."""


def regression(**changes: Any) -> Supervised:
    given = {"train": (X[:50], Y[:50]), "fitness": (X[50:], Y[50:]), "test": (X[50:], Y[50:]), **changes}
    return Supervised(lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), F.mse_loss, **given)


def seen_by(task: Supervised, x: Tensor) -> Tensor:
    """What the user's own network is called with."""
    seen, network = list[Tensor](), task.model()
    network.network.register_forward_pre_hook(lambda module, given: seen.append(given[0]))  # type: ignore[union-attr, operator]
    network(x)
    return seen[0]


def test_inputs_are_standardised_by_the_training_split() -> None:
    z = seen_by(scaled(regression()), X[:50])
    assert torch.allclose(z.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(z.std(0, correction=0), torch.ones(3), atol=1e-3)


def test_the_loss_is_that_of_standardised_targets_and_outputs_are_in_their_own_units() -> None:
    task = scaled(regression())
    network = task.model()
    output, mean, deviation = network(X[:50]), Y[:50].mean(), Y[:50].std(correction=0)
    assert float(output.detach().mean()) > 1e4
    expected = F.mse_loss((output - mean) / deviation, (Y[:50] - mean) / deviation)
    assert torch.allclose(task.loss(network, (X[:50], Y[:50])), expected, rtol=1e-4)


def test_a_run_answers_in_units_of_the_targets_and_its_files_hold_the_scales(tmp_path: Path) -> None:
    metrics = {"mae": lambda output, target: (output - target).abs().mean()}
    task = scaled(regression(metrics=metrics))
    recipe = esgd.Recipe(population=4, generations=2, sgd_epochs=20)
    result = esgd.fit(task, recipe, seed=0, engine="loop", progress=False, run=tmp_path / "r", report=False)
    assert result.fitness < 0.5 < 1e3 < result.test["mae"] < 1e5
    plain = scaled(regression()).model()
    plain.load_state_dict(load_file(tmp_path / "r" / "model.safetensors"))
    assert torch.equal(plain.eval()(X), result.model(X))
    assert [
        note["kind"] for line in result.history for note in line["notes"] if note["kind"] in ("scale", "targets")
    ] == []


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("engine", ["vmap", "pool:workers=1"])
def test_every_engine_trains_it(engine: str) -> None:
    recipe = esgd.Recipe(population=3, generations=1, sgd_epochs=2)
    loop, other = (
        esgd.fit(scaled(regression()), recipe, seed=0, engine=each, progress=False) for each in ("loop", engine)
    )
    assert other.fitness == pytest.approx(loop.fitness, rel=1e-5)


def test_the_scales_are_the_same_in_all_individuals_and_are_not_trained() -> None:
    recipe = esgd.Recipe(population=3, generations=2, sgd_epochs=2)
    task = scaled(regression())
    before = task.model().state_dict()
    result = esgd.fit(task, recipe, seed=0, engine="loop", progress=False)
    for name in ("inputs.0", "output"):
        assert torch.equal(result.model.state_dict()[name], before[name])


def test_a_dataset_has_the_statistics_of_its_samples() -> None:
    tensors, dataset = scaled(regression()), scaled(regression(train=AsDataset(X[:50], Y[:50])))
    for name in ("inputs.0", "output"):
        assert torch.allclose(tensors.model().state_dict()[name], dataset.model().state_dict()[name])


def test_labels_words_and_constant_features_stay_as_they_are() -> None:
    words, x, y = torch.randint(9, (20, 4)), torch.randn(20, 2), torch.arange(20) % 2
    x[:, 0] = 7.0

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.out = nn.Embedding(9, 3), nn.Linear(5, 2)

        def forward(self, word: Tensor, number: Tensor) -> Tensor:
            return self.out(torch.cat([self.embedding(word).mean(1), number], dim=1))  # type: ignore[no-any-return]

    task = scaled(Supervised(Both, F.cross_entropy, train=(words, x, y), fitness=(words, x, y)))
    network = task.model()
    assert [name for name, _ in network.named_buffers()] == ["inputs.1"]
    assert network(words, x).isfinite().all()


def test_images_are_standardised_by_channel() -> None:
    x = torch.randn(30, 2, 5, 5) * torch.tensor([1.0, 50.0])[:, None, None]
    y = torch.arange(30) % 2
    make = lambda: nn.Sequential(nn.Flatten(), nn.Linear(50, 2))  # noqa: E731
    z = seen_by(scaled(Supervised(make, F.cross_entropy, train=(x, y), fitness=(x, y))), x)
    assert torch.allclose(z.std(dim=(0, 2, 3)), torch.ones(2), atol=0.01)


def test_targets_of_a_loss_of_your_own_are_scaled_if_you_say_so() -> None:
    def own(output: Tensor, target: Tensor) -> Tensor:
        return (output - target).square().mean()

    task = Supervised(lambda: nn.Linear(3, 1), own, train=(X, Y), fitness=(X, Y))
    assert "output" not in scaled(task).model().state_dict()
    assert "output" in scaled(task, targets=True).model().state_dict()
    assert scaled(task, targets=True).describe()["loss"].startswith("scaled(")
    assert scaled(regression(), targets=False).describe()["loss"] == "mse_loss"


def test_the_constant_answer_is_in_scaled_units() -> None:
    task = regression(fitness=(X[:50], Y[:50]))
    assert (task.constant_fitness() or 0.0) > 1e6
    assert scaled(task).constant_fitness() == pytest.approx(1.0, rel=1e-4)


def test_what_cannot_be_scaled_says_why() -> None:
    y = torch.arange(80) % 2
    classes = Supervised(lambda: nn.Linear(3, 2), F.cross_entropy, train=(X, y), fitness=(X, y))
    with pytest.raises(TaskError, match="no floating-point numbers"):
        scaled(classes, targets=True)
    with pytest.raises(TaskError, match="cannot read a Stream"):
        scaled(regression(train=lambda: [(X, Y)]))
    with pytest.raises(TaskError, match="was given a str"):
        scaled("digits")  # type: ignore[arg-type]
    holes = X.clone()
    holes[3] = torch.nan
    with pytest.raises(TaskError, match="input 0 of train has NaN or inf"):
        scaled(regression(train=AsDataset(holes, Y)))


def test_batches_with_names_are_refused_and_not_taken_by_their_order() -> None:
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    named = esgd.Supervised(lambda: nn.Linear(3, 1), F.mse_loss, train={"labels": y, "x": x}, fitness=(x, y))
    with pytest.raises(TaskError, match="by their places in a batch"):
        esgd.scaled(named)
