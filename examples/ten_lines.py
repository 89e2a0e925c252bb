"""A model and data, trained by a population."""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.nn import functional as F

import esgd

x, y = (torch.as_tensor(a) for a in load_breast_cancer(return_X_y=True))
x = ((x - x.mean(dim=0)) / x.std(dim=0)).float()


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))


task = esgd.Supervised(make_model, F.cross_entropy, train=(x[:300], y[:300]), fitness=(x[300:450], y[300:450]))
result = esgd.fit(task, esgd.Recipe(population=8, generations=4), seed=0)

error = (result.model(x[450:]).argmax(dim=1) != y[450:]).float().mean()
print(f"fitness {result.fitness:.4f}, error on the rest {error:.1%}")
