"""What is trained: six networks, data of the right shapes, and a learning rate and momentum for every individual.

Every side of every comparison trains these, in this environment or in that of the peers, so nothing here imports the
library. Speed does not depend on what the numbers say, so the data are synthetic except for the digits; labels come
from a random teacher, so that SGD has something to learn and no side is slowed down by NaN. The number of samples is a
multiple of the batch size: frameworks that compile for one shape need no second one.

| name   | network                                              | individuals | batch | data                        |
|--------|------------------------------------------------------|-------------|-------|-----------------------------|
| W1     | MLP 64-32-10                                         | 64          | 32    | scikit-learn's digits       |
| W2     | MLP 784-128-64-10                                    | 16          | 128   | the size of MNIST           |
| W2x100 | the same                                             | 100         | 128   |                             |
| W3     | MLP 360-1024-1024-512-1000, 2.5 million parameters   | 8           | 128   | acoustic frames             |
| W4     | ResNet with BatchNorm, three blocks of 16, 32 and 64 | 8           | 64    | 32×32 images, 10 classes    |
| W5     | BiLSTM, 128 units a direction, over 21 frames of 40  | 8           | 64    | speech, 500 classes         |
| W6     | LSTM language model, 200 units, 10,000 words         | 8           | 20×35 | text like the Penn Treebank |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import exp, log

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Data = tuple[Tensor, Tensor]
RATES, MOMENTA = (0.005, 0.05), (0.5, 0.9)
FITNESS = 64
"""Samples of the fitness that closes an SGD step: a token, because training is what is compared."""
GENERATIONS, GENERATION_EPOCHS, FULL_FITNESS = 3, 20, 512
"""Where whole methods are compared: generations, SGD epochs in each, and samples of the fitness."""


@dataclass(frozen=True)
class Workload:
    """One network on one kind of data: how many individuals train it, for how many epochs, on what."""

    name: str
    about: str
    make_model: Callable[[], nn.Module]
    make_data: Callable[[int], Data]
    individuals: int
    samples: int
    batch: int
    epochs: int = 1
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy

    @property
    def steps(self) -> int:
        """SGD steps of one individual in a round."""
        return self.epochs * (self.samples // self.batch)

    def data(self, fitness: int = FITNESS) -> tuple[Data, Data]:
        """Training samples, and the fitness samples that follow them."""
        x, y = self.make_data(self.samples + fitness)
        return (x[: self.samples], y[: self.samples]), (x[self.samples :], y[self.samples :])

    def hyper(self) -> list[tuple[float, float]]:
        """Learning rate, log-uniform, and momentum, uniform, of every individual."""
        draws = torch.rand(self.individuals, 2, generator=generator(), dtype=torch.float64).tolist()
        low, high = map(log, RATES)
        return [(exp(low + u * (high - low)), MOMENTA[0] + v * (MOMENTA[1] - MOMENTA[0])) for u, v in draws]

    def tiny(self) -> Workload:
        """So small that a test can run it: two individuals, two batches."""
        return replace(self, individuals=2, samples=2 * min(self.batch, 32), batch=min(self.batch, 32), epochs=1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Block(nn.Module):
    """A basic residual block; the shortcut is projected where width or resolution change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        projection = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class BiLstm(nn.Module):
    """The class of the middle frame."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 128, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, 500)

    def forward(self, frames: Tensor) -> Tensor:
        return self.head(self.lstm(frames)[0][:, 10])


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10_000, 200)
        self.lstm = nn.LSTM(200, 200, batch_first=True)
        self.head = nn.Linear(200, 10_000)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(words))[0])


def word_loss(output: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), words.flatten())


def digits(samples: int) -> Data:
    """The first so many of the 1,797 images, scaled to 0 … 1."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return torch.tensor(x[:samples] / 16, dtype=torch.float32), torch.tensor(y[:samples])


def taught(samples: int, *, shape: tuple[int, ...], classes: int) -> Data:
    """Gaussian inputs, labelled by a random linear teacher."""
    x = torch.randn(samples, *shape, generator=generator(1))
    return x, (x.flatten(1) @ torch.randn(x[0].numel(), classes, generator=generator(2))).argmax(dim=1)


def text(samples: int, *, length: int = 35, vocabulary: int = 10_000) -> Data:
    """Sequences in which frequent words are frequent; the target is the next word."""
    words = (vocabulary ** torch.rand(samples, length + 1, generator=generator(3))).long() - 1
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


W2 = Workload(
    "W2",
    "MLP 784-128-64-10, 16 individuals",
    partial(mlp, 784, 128, 64, 10),
    partial(taught, shape=(784,), classes=10),
    *(16, 3072, 128, 3),
)
ALL = (
    Workload("W1", "MLP 64-32-10 on digits, 64 individuals", partial(mlp, 64, 32, 10), digits, 64, 1280, 32, 2),
    W2,
    replace(W2, name="W2x100", about="MLP 784-128-64-10, 100 individuals", individuals=100, epochs=1),
    Workload(
        "W3",
        "acoustic MLP 360-1024-1024-512-1000, 8 individuals",
        partial(mlp, 360, 1024, 1024, 512, 1000),
        partial(taught, shape=(360,), classes=1000),
        *(8, 1024, 128, 2),
    ),
    Workload(
        "W4",
        "ResNet with BatchNorm on 32×32 images, 8 individuals",
        ResNet,
        partial(taught, shape=(3, 32, 32), classes=10),
        *(8, 512, 64),
    ),
    Workload(
        "W5",
        "BiLSTM on 21×40 frames, 8 individuals",
        BiLstm,
        partial(taught, shape=(21, 40), classes=500),
        *(8, 1024, 64),
    ),
    Workload("W6", "LSTM language model, 8 individuals", LanguageModel, text, 8, 200, 20, 1, word_loss),
)
WORKLOADS = {workload.name: workload for workload in ALL}


def asked_for() -> Workload:
    """The workload that a child's first argument names, at the size its parent wants."""
    workload = WORKLOADS[sys.argv[1]]
    return workload.tiny() if "--quick" in sys.argv else workload
