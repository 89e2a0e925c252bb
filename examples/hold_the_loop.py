"""`evolve()` as a generator: look at every generation, stop when you like."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd

x = torch.linspace(-3, 3, 400)[:, None]
y = torch.sin(2 * x) + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))


task = esgd.Supervised(make_model, F.mse_loss, train=(x[::2], y[::2]), fitness=(x[1::2], y[1::2]), batch_size=16)
for generation in esgd.evolve(task, esgd.Recipe(population=6, sgd_epochs=8), seed=0):
    print(generation)
    if generation.best.fitness < 0.05:
        break

network = generation.best.module()
print(f"{sum(p.numel() for p in network.parameters())} parameters, loss {generation.best.fitness:.4f}")
