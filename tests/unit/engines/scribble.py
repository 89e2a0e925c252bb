"""A task whose loss writes into what it holds, and how to tell who saw it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import esgd
from esgd.engines.pickling import LARGE
from tests.small import mlp, random_data


class Scribble:
    """Every process counts its own calls in a tensor and in an array that are large enough to be shared."""

    recipe = esgd.Recipe(population=8, offspring=0, generations=1, sgd_epochs=1, elites=1)

    def __init__(self, folder: Path) -> None:
        self.folder, self.tensor, self.array = folder, torch.zeros(LARGE), np.zeros(LARGE)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.tensor[0] += 1
            self.array[0] += 1
            (self.folder / f"{os.getpid()} {int(self.tensor[0])} {int(self.array[0])}").touch()
        return F.cross_entropy(output, target)

    def task(self) -> esgd.Supervised:
        return esgd.Supervised(mlp, self.loss, train=random_data(16), fitness=random_data(16), batch_size=16)

    def check(self) -> None:
        """Eight individuals, a step each; nobody counted another's, and here nobody wrote."""
        calls = sorted(tuple(map(int, path.name.split())) for path in self.folder.iterdir())
        pids = {pid for pid, *_ in calls}
        assert calls == [(pid, n, n) for pid in sorted(pids) for n in range(1, sum(pid == p for p, *_ in calls) + 1)]
        assert len(calls) == 8
        assert float(self.tensor[0]) == self.array[0] == 0.0
