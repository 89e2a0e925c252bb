"""Pictures for the arena: Fashion-MNIST and CIFAR-10, few of them, so that a run takes seconds."""

from __future__ import annotations

import gzip
import os
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from benchmarks.children import ROOT
from esgd.policies import Policy
from esgd.schedules import CosineRun
from esgd.tasks import Supervised, error_rate
from esgd_paper.data.cifar10 import cifar10
from esgd_paper.data.folders import data_folder
from esgd_paper.networks.convolutional import convolutional

SIZES = (2000, 1000, 4000)  # to train on, for the fitness, to test on
CONVERGED = 60  # epochs of the network that fine-tuning begins with

Splits = tuple[tuple[Tensor, Tensor], ...]


def fashion_mlp(seed: int) -> Supervised:
    """Fashion-MNIST with an MLP."""
    return _task(_perceptron, _split(*_fashion(), seed=seed))


def fashion_cnn(seed: int) -> Supervised:
    """Fashion-MNIST with a small convolutional network."""
    return _task(partial(convolutional, channels=1, stride=2, places=9), _split(*_fashion(), seed=seed))


def photographs(seed: int) -> Supervised:
    """CIFAR-10 at half its resolution with a small convolutional network, from scratch."""
    return _task(convolutional, _split(*_photographs(), seed=seed))


def tuned_photographs(seed: int) -> Supervised:
    """The same from a network that has converged already: all individuals begin with it."""
    task = photographs(seed)
    state = _converged(seed)

    def converged() -> nn.Module:
        network = task.model()
        network.load_state_dict(state)
        return network

    return _task(converged, _split(*_photographs(), seed=seed))


@lru_cache(maxsize=8)
def _converged(seed: int) -> dict[str, Tensor]:
    """One network, trained as people do; no arm pays for it."""
    policy = Policy(optimizer="sgd", hyper={"lr": 0.03, "momentum": 0.9, "weight_decay": 5e-3}, schedule=CosineRun())
    task = photographs(seed)
    recipe = esgd.rules.single(task, 3.0 * CONVERGED * SIZES[0], policy=policy)
    result = esgd.fit(task, recipe, seed=seed, engine="loop:threads=1", progress=False, on_interrupt="raise")
    return result.model.state_dict()


def _task(make_model: object, splits: Splits) -> Supervised:
    train, fitness, test = splits
    return Supervised(
        make_model,
        F.cross_entropy,
        train=train,
        fitness=fitness,
        test=test,
        batch_size=32,
        metrics={"error": error_rate},
    )


def _split(x: Tensor, y: Tensor, *, seed: int) -> Splits:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[: sum(SIZES)]
    return tuple(zip(x[order].split(SIZES), y[order].split(SIZES), strict=True))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


@lru_cache(maxsize=1)
def _fashion() -> tuple[Tensor, Tensor]:
    """The 60,000 training pictures of Debian's package, whose folder `make arena` fills."""
    folder = Path(os.environ.get("FASHION_MNIST", ROOT / "build" / "fashion-mnist"))
    if not folder.is_dir():
        raise SystemExit(f"no Fashion-MNIST in {folder}. `make arena` puts it there; or set FASHION_MNIST to a folder")
    pixels = np.frombuffer(gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    x = torch.from_numpy(pixels.astype(np.float32)).view(-1, 1, 28, 28)
    return (x - 72.9) / 90.0, torch.from_numpy(labels.astype(np.int64))


@lru_cache(maxsize=1)
def _photographs() -> tuple[Tensor, Tensor]:
    images = cifar10(data_folder(None))
    x = F.avg_pool2d((images.train.float() - 120.7) / 64.0, 2)
    return x, images.train_labels.long()
