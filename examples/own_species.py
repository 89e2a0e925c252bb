"""An optimizer pool of your own, and settings that the task understands."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.species import Choice, LogUniform, Mixture, Optimizer, Sgd, Uniform

generator = torch.Generator().manual_seed(0)
x = torch.randn(600, 10, generator=generator)
y = (x[:, :3].sum(dim=1) > 0).long()


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2))


species = Mixture(
    species=(
        Sgd(lr=(0.01, 0.3)),
        Optimizer(
            name="adamw",
            lr=LogUniform(1e-4, 1e-2),
            hyper={"weight_decay": Uniform(0.0, 0.1)},
            settings={"dropout": Uniform(0.0, 0.5), "batch_size": Choice((16, 32, 64))},
        ),
    ),
    weights=(0.3, 0.7),
)
task = esgd.Supervised(make_model, F.cross_entropy, train=(x[:400], y[:400]), fitness=(x[400:], y[400:]))
for generation in esgd.evolve(task, esgd.Recipe(population=8, generations=3, species=species), seed=0):
    print(generation)
