"""A small run that kills itself, with SIGKILL, at a chosen moment: victim.py FOLDER WHERE NUMBER [RECIPE ENGINE].

The recipe is `plain` or a `funnel`."""

import os
import signal
import sys

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.operators import BestOfLooks, Carried, Elitist, GreedySoup, Mated, Uninterrupted, trajectories
from esgd.run import files
from esgd.sizes import Earned, Funnel, Shared
from esgd.species import Adam, Mixture, Sgd

FOLDER, WHERE, NUMBER = sys.argv[1], sys.argv[2], int(sys.argv[3])
RECIPE, ENGINE = sys.argv[4:] or ("plain", "auto")
SPECIES = Mixture(species=(Sgd(lr=(0.01, 0.3)), Adam(lr=(1e-3, 1e-2))))
RECIPES = {
    "plain": esgd.Recipe(
        population=4,
        offspring=6,
        generations=3,
        sgd_epochs=2,
        species=SPECIES,
        baggage=Carried(),
        fine_tuning=esgd.FineTuning(lr=0.01, epochs=1),
    ),
    "funnel": esgd.Recipe(
        population=Funnel(5, 1),
        offspring=Earned(1, 4),
        elites=0.5,
        generations=4,
        sgd_epochs=Shared(4),
        species=SPECIES,
        mates_from=trajectories,
        kinds=(Mated(), GreedySoup()),
        backoff=BestOfLooks(ema=1.0),
        baggage=Uninterrupted(),
        survival=Elitist(rest=trajectories, ranked=True),
    ),
}
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
    result = esgd.fit(task, RECIPES[RECIPE], seed=7, run=FOLDER, engine=ENGINE, progress=False, report=False)
    print(result.fitness)


main()
