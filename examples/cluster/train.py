"""For `ray submit launch.yaml train.py`: it runs on the head. The run folder belongs on storage that outlives it."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd

x = torch.randn(20_000, 100, generator=torch.Generator().manual_seed(0))  # a resumed run needs the same data
y = (x[:, :50].sum(1) > 0).long()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 2))


task = esgd.Supervised(network, F.cross_entropy, train=(x[:16_000], y[:16_000]), fitness=(x[16_000:], y[16_000:]))
engine = esgd.Ray(address="auto", workers=128, patience=1800)  # as many as eight nodes hold, and time to boot them
esgd.fit(task, esgd.Recipe(population=128, offspring=512), seed=0, engine=engine, run="runs/mine")
