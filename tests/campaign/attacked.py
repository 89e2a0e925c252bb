"""What is attacked: a small study with everything that a checkpoint has to carry.

Dropout and BatchNorm (randomness and buffers), two species, optimizer states that are inherited, and fine-tuning.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.operators import Carried
from esgd.species import Adam, Mixture, Sgd
from esgd.studies import Study

NAME = f"{__name__}:study"
PACKAGE = __name__.partition(".")[0]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def task(seed: int) -> esgd.Supervised:
    """The same data for every seed."""
    x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    train, fitness = (x[:64], y[:64]), (x[64:], y[64:])
    return esgd.Supervised(network, F.cross_entropy, train=train, fitness=fitness, batch_size=16, nonnegative=True)


recipe = esgd.Recipe(
    population=4,
    offspring=6,
    generations=3,
    sgd_epochs=1,
    species=Mixture(species=(Sgd(lr=(0.01, 0.3)), Adam(lr=(1e-3, 1e-2)))),
    baggage=Carried(),
    fine_tuning=esgd.FineTuning(lr=0.01, epochs=1),
)
study = Study(name="subject", about="Small and quick.", task=task, recipe=recipe)
