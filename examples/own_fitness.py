"""Selecting by something that is not the loss: here the error of the worst class."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd

generator = torch.Generator().manual_seed(0)
x = torch.randn(900, 5, generator=generator)
y = (x[:, 0] > 1.0).long() + (x[:, 1] > 0.5).long()


def worst_class_error(network: nn.Module) -> float:
    """A number to minimise; the network comes in eval mode, without gradients."""
    wrong = network(x[600:]).argmax(dim=1) != y[600:]
    return max(float(wrong[y[600:] == label].float().mean()) for label in range(3))


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))


task = esgd.Supervised(make_model, F.cross_entropy, train=(x[:600], y[:600]), fitness=worst_class_error)
result = esgd.fit(task, esgd.Recipe(population=6, generations=3, sgd_epochs=6), seed=0, progress=False)
print(f"error of the worst class: {result.fitness:.1%}")
