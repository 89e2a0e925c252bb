"""The task of the run folder in this fixture, in double precision: the rounding of another processor is small."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.operators import CarriedByMate, Elitist, PerEpoch, trajectories
from esgd.species import Adam, Inherited, Mixture, Sgd


def network() -> nn.Module:
    layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
    return layers.double()


X = torch.randn(160, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
task = esgd.Supervised(
    network,
    F.cross_entropy,
    train=(X[:64], Y[:64]),
    fitness=(X[64:128], Y[64:128]),
    test=(X[128:], Y[128:]),
    batch_size=16,
)
recipe = esgd.Recipe(
    population=4,
    offspring=6,
    generations=5,
    sgd_epochs=2,
    species=Inherited(species=Mixture(species=(Sgd(lr=(0.01, 0.3)), Adam(lr=(1e-3, 1e-2))))),
    backoff=PerEpoch(),
    survival=Elitist(rest=trajectories),
    baggage=CarriedByMate(),
    fine_tuning=esgd.FineTuning(lr=0.01, epochs=1),
)
