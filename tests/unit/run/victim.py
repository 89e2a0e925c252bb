"""A small run that kills itself, with SIGKILL, at a chosen moment: python victim.py FOLDER WHERE NUMBER."""

import os
import signal
import sys

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.operators import Carried
from esgd.run import files
from esgd.species import Adam, Mixture, Sgd

FOLDER, WHERE, NUMBER = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = dict.fromkeys(("loss", "fitness", "sync"), 0)


def maybe_die(where: str) -> None:
    calls[where] += 1
    if where == WHERE and calls[where] == NUMBER:
        os.kill(os.getpid(), signal.SIGKILL)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    maybe_die("loss" if torch.is_grad_enabled() else "fitness")
    return F.cross_entropy(output, target)


def mortal_sync(path, sync=files.sync):
    maybe_die("sync")
    sync(path)


def main() -> None:
    for module in [m for name, m in sys.modules.items() if name.startswith("esgd.run")]:
        if hasattr(module, "sync"):
            module.sync = mortal_sync
    x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    task = esgd.Supervised(
        network, loss, train=(x[:64], y[:64]), fitness=(x[64:], y[64:]), batch_size=16, nonnegative=True
    )
    recipe = esgd.Recipe(
        population=4,
        offspring=6,
        generations=3,
        sgd_epochs=2,
        species=Mixture(species=(Sgd(lr=(0.01, 0.3)), Adam(lr=(1e-3, 1e-2)))),
        baggage=Carried(),
        fine_tuning=esgd.FineTuning(lr=0.01, epochs=1),
    )
    result = esgd.fit(task, recipe, seed=7, run=FOLDER, progress=False)
    print(result.fitness)


main()
