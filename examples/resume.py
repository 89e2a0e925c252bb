"""A run folder: stop it at any moment, run the same lines again, get a bit-identical result."""

import tempfile

import torch
from torch import nn
from torch.nn import functional as F

import esgd

x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
y = x[:, :2].prod(dim=1, keepdim=True)


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


task = esgd.Supervised(make_model, F.mse_loss, train=(x[:200], y[:200]), fitness=(x[200:], y[200:]))
recipe = esgd.Recipe(population=4, generations=3, sgd_epochs=5)

with tempfile.TemporaryDirectory() as folder:
    first = esgd.fit(task, recipe, seed=0, run=f"{folder}/mine")  # Ctrl-C, kill -9, power cut: …
    again = esgd.fit(task, recipe, seed=0, run=f"{folder}/mine")  # … this line continues where it stopped
    assert torch.equal(first.population.rows, again.population.rows)
    print(f"fitness {again.fitness:.4f} after {len(again.history)} generations")
