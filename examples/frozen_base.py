"""Adapters on a frozen base: the population costs μ adapters and one base."""

import torch
from torch import nn
from torch.nn import functional as F

import esgd


class Adapted(nn.Module):
    """A large frozen layer with a low-rank correction, and a small head."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(256, 1024).requires_grad_(False)
        self.down, self.up = nn.Linear(256, 4, bias=False), nn.Linear(4, 1024, bias=False)
        self.head = nn.Linear(1024, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.base(x) + self.up(self.down(x))))


generator = torch.Generator().manual_seed(0)
x = torch.randn(400, 256, generator=generator)
y = (x[:, :8].sum(dim=1) > 0).long()
task = esgd.Supervised(Adapted, F.cross_entropy, train=(x[:300], y[:300]), fitness=(x[300:], y[300:]))
result = esgd.fit(task, esgd.Recipe(population=6, generations=2), seed=0, progress=False)

frozen = sum(p.numel() for p in result.model.parameters() if not p.requires_grad)
print(f"{len(result.population)} individuals of {result.population.genome.size} parameters share {frozen} frozen ones")
