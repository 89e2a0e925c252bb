"""A recipe in a config of Hydra or OmegaConf: names, ranges and sizes are data, and are overridden as usual."""

import torch
from omegaconf import OmegaConf
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.integrations import hydra

cfg = OmegaConf.create(
    """
    width: 16
    recipe:
      population: 4
      generations: 3
      sgd_epochs: 2
      species: {kind: adam, lr: {kind: log_uniform, low: 0.001, high: 0.1}}
    """
)
cfg.merge_with_dotlist(["recipe.population=6"])  # with @hydra.main: python program.py recipe.population=6

x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] * x[:, 1] > 0).long()
task = esgd.Supervised(
    lambda: nn.Sequential(nn.Linear(5, cfg.width), nn.ReLU(), nn.Linear(cfg.width, 2)),
    F.cross_entropy,
    train=(x[:200], y[:200]),
    fitness=(x[200:], y[200:]),
)
result = esgd.fit(task, hydra.recipe(cfg.recipe), seed=0, engine="loop", progress=False)
print(f"{len(result.population)} networks, fitness {result.fitness:.3f}")
