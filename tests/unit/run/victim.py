"""A small run that kills itself, with SIGKILL, at a chosen moment: victim.py FOLDER WHERE NUMBER [RECIPE ENGINE].

The recipe is `plain`, a `funnel`, or the funnel of the CIFAR-10 trials, `cifar`. Workers of a pool are warm."""

import os
import signal
import sys

import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.engines.processes import executor
from esgd.operators import (
    BestOfLooks,
    Carried,
    Elitist,
    Gaussian,
    GreedySoup,
    Mated,
    MeanOfElites,
    Uninterrupted,
    trajectories,
)
from esgd.run import files
from esgd.schedules import Cosine
from esgd.sizes import Each, Earned, Funnel, Shared
from esgd.species import Adam, Inherited, LogUniform, Mixture, Sgd
from tests import warm

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
    "cifar": esgd.Recipe(
        population=Each((6, 2, 2)),
        offspring=Each((4, 4, 2)),
        elites=1.0,
        generations=3,
        sgd_epochs=Each((1, 2, 3)),
        mates={2, 3, 4},
        mates_from=trajectories,
        kinds=(MeanOfElites(), GreedySoup(), Mated()),
        mutation=Gaussian(sigma=0.0),
        backoff=BestOfLooks(looks=()),
        species=Inherited(
            species=Sgd(
                lr=LogUniform(0.01, 0.06),
                gamma=1.0,
                momentum=0.9,
                momentum_probability=1.0,
                nesterov_probability=1.0,
                schedule=Cosine(),
                hyper={"weight_decay": LogUniform(2e-3, 1.2e-2)},
            ),
            probability=0.75,
            jitter=0.3,
        ),
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
    executor._started = warm.worker
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
