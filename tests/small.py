"""Small networks on small random data: what the tests train. Labels are noise, so SGD has something to go wrong on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd._algorithm.initialization import prepare
from esgd.protocols import Draw, Session
from esgd.randomness import Seeds

INPUTS, CLASSES = 6, 3
Data = tuple[Tensor, Tensor]


def random_data(samples: int, *, seed: int = 0) -> Data:
    """Gaussian inputs with random labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, INPUTS, generator=generator), torch.randint(CLASSES, (samples,), generator=generator)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.ReLU(), nn.Linear(7, CLASSES))


def batchnorm_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, CLASSES))


def dropout_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.ReLU(), nn.Dropout(0.3), nn.Linear(7, CLASSES))


def classify(make_model: Callable[[], nn.Module] = mlp, **changes: Any) -> esgd.Supervised:
    """Classification of noise: 48 samples to train on, 70 (two parts) as fitness."""
    given = {"train": random_data(48), "fitness": random_data(70, seed=1), "batch_size": 16, **changes}
    return esgd.Supervised(make_model, F.cross_entropy, **given)


def true_fitness(network: nn.Module, data: Data) -> float:
    """The mean loss of an ordinary network, taken without the library; what is not finite counts as inf."""
    with torch.no_grad():
        loss = float(F.cross_entropy(network(data[0]).double(), data[1]))
    return loss if isfinite(loss) else inf


def ask(k: int = 1, j: int = 0, *, seed: int = 0, generations: int = 10, **rest: Any) -> Draw:
    """The request a species is asked with for individual j in generation k."""
    return Draw(k=k, j=j, generations=generations, stream=Seeds(seed, ("policy",)), **rest)


@contextmanager
def session(task: esgd.Supervised, recipe: esgd.Recipe, *, seed: int = 0) -> Iterator[Session]:
    """The Loop engine at work, for tests that look at one step of a generation."""
    with esgd.Loop(threads=1).open(prepare(task, recipe, seed), lambda phase, done, total: None) as opened:
        yield opened


class RecordingSgd(torch.optim.SGD):
    """A real SGD that writes down the hyper-parameters it really steps with. Named in policies by `RECORDING_SGD`."""

    steps: ClassVar[list[dict[str, Any]]] = []

    def step(self, closure: Any = None) -> Any:
        group = self.param_groups[0]
        RecordingSgd.steps.append({name: group[name] for name in ("lr", "momentum", "nesterov", "weight_decay")})
        return super().step(closure)


RECORDING_SGD = f"{RecordingSgd.__module__}:RecordingSgd"
