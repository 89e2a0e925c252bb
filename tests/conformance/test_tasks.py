"""`Supervised` conforms with every kind of data, and every sentence of `check_task` is earned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from esgd import Supervised
from esgd.randomness import Seeds
from esgd.testing import check_task
from tests.small import batchnorm_mlp, dropout_mlp, mlp, random_data

X, Y = random_data(48)
XY = TensorDataset(X, Y)


class Jittered(Dataset[Any]):
    """Random augmentation from the global generator, as torchvision's transforms draw it."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index] + 0.1 * torch.randn(X.shape[1]), Y[index]


TASKS = {
    "tensors": Supervised(mlp, F.cross_entropy, train=(X, Y), fitness=random_data(200, seed=1), test=(X, Y)),
    "a TensorDataset": Supervised(mlp, F.cross_entropy, train=XY, fitness=XY),
    "an augmented dataset": Supervised(dropout_mlp, F.cross_entropy, train=Jittered(), fitness=Jittered()),
    "a list of samples": Supervised(batchnorm_mlp, F.cross_entropy, train=list(XY), fitness=list(XY)),
    "a stream": Supervised(mlp, F.cross_entropy, train=lambda: DataLoader(XY, 16), fitness=lambda: DataLoader(XY, 16)),
    "a shuffling stream": Supervised(
        mlp, F.cross_entropy, train=lambda: DataLoader(XY, 16, shuffle=True), fitness=lambda: DataLoader(XY, 16)
    ),
    "a fitness of one's own": Supervised(
        mlp, F.cross_entropy, train=XY, fitness=lambda net: 1 - (net(X).argmax(1) == Y).double().mean()
    ),
    "a loss per sample": Supervised(mlp, nn.CrossEntropyLoss(reduction="none"), train=XY, fitness=XY),
    "no remainder of one": Supervised(mlp, F.cross_entropy, train=(X[:33], Y[:33]), fitness=XY, batch_size=16),
}


@pytest.mark.parametrize("name", list(TASKS))
def test_supervised_conforms_with(name: str) -> None:
    check_task(TASKS[name])


class Sound:
    """A task that conforms; each broken one differs in one thing."""

    def __init__(self) -> None:
        self.inner = Supervised(mlp, F.cross_entropy, train=(X, Y), fitness=random_data(200, seed=1))

    @property
    def nonnegative(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_the_sound_task_conforms() -> None:
    check_task(Sound())


class OneNetwork(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.network = mlp()

    def model(self) -> nn.Module:
        return self.network


class PrivateRandomness(Sound):
    generator = torch.Generator()

    def model(self) -> nn.Module:
        network = mlp()
        with torch.no_grad():
            next(network.parameters()).normal_(generator=self.generator)
        return network


class TakesAnySetting(Sound):
    def prepare(self, module: nn.Module, settings: Any) -> None:
        pass


class RefusesWithoutAName(Sound):
    def prepare(self, module: nn.Module, settings: Any) -> None:
        if settings:
            raise ValueError("bad settings")


class Unaddressed(Sound):
    generator = torch.Generator()

    def batches(self, seeds: Seeds, settings: Any) -> Iterable[Any]:
        order = torch.randperm(len(X), generator=self.generator)
        return [(X[order], Y[order])]

    def steps(self, settings: Any) -> int:
        return 1


class NoBatches(Sound):
    def batches(self, seeds: Seeds, settings: Any) -> Iterable[Any]:
        return []


class SizeZero(Sound):
    def size(self, batch: Any) -> int:
        return 0


class TooFewSteps(Sound):
    def steps(self, settings: Any) -> int:
        return 1


class VectorLoss(Sound):
    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(module(batch[0]), batch[1], reduction="none")


class DetachedLoss(Sound):
    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        return self.inner.loss(module, batch).detach()


class FlatLoss(Sound):
    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        return 0.0 * self.inner.loss(module, batch)


class NoisyFitness(Sound):
    generator = torch.Generator()

    def fitness(self, module: nn.Module, batch: Any) -> Tensor:
        return self.inner.fitness(module, batch) + torch.rand((), generator=self.generator)


class NumbersByPosition(Sound):
    def parts(self, order: Any = None) -> Any:
        return enumerate(batch for _, batch in self.inner.parts(order))


class NumbersFromOne(Sound):
    def parts(self, order: Any = None) -> Any:
        return [(part + 1, batch) for part, batch in self.inner.parts(None)]


class BelowZero(Sound):
    def fitness(self, module: nn.Module, batch: Any) -> Tensor:
        return self.inner.fitness(module, batch) - 1000.0


class LearnsFromTheFitness(Sound):
    def fitness(self, module: nn.Module, batch: Any) -> Tensor:
        fitness = self.inner.fitness(module, batch)
        next(module.parameters()).zero_()
        return 0.0 * fitness


class CountsForNothing(Sound):
    def divisor(self, batch: Any) -> float:
        return 0.0


class NoParts(Sound):
    def parts(self, order: Any = None) -> Any:
        return []


class MovingCalibration(Sound):
    generator = torch.Generator()

    def calibration(self, samples: int) -> Any:
        order = torch.randperm(len(X), generator=self.generator)
        return [(X[order], Y[order])]


class DescribesATensor(Sound):
    def describe(self) -> dict[str, Any]:
        return {"mean": X.mean()}


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (OneNetwork, "the same network twice"),
        (PrivateRandomness, "initialised two networks differently"),
        (TakesAnySetting, "without a word"),
        (RefusesWithoutAName, "Name the setting"),
        (Unaddressed, "two epochs with the same seeds differ"),
        (NoBatches, "gave none"),
        (SizeZero, "it counts samples"),
        (TooFewSteps, "steps() says 1, but an epoch has 2 batches".replace("(", r"\(").replace(")", r"\)")),
        (VectorLoss, "SGD needs a scalar"),
        (DetachedLoss, "SGD needs a scalar"),
        (FlatLoss, "is zero for every parameter"),
        (NoisyFitness, "scored twice"),
        (NumbersByPosition, "visited in reverse order"),
        (NumbersFromOne, "they count from 0"),
        (BelowZero, "says that it is nonnegative"),
        (LearnsFromTheFitness, "changed the network"),
        (NoParts, "A mean needs at least one"),
        (CountsForNothing, "the divisors of the parts are"),
        (MovingCalibration, "gave two different sets"),
        (DescribesATensor, "cannot be written into the manifest"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_broken_task_is_caught(broken: type[Sound], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_task(broken())
