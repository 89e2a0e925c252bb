"""A study of Optuna whose trials are populations; those that promise little are pruned after a few generations."""

import optuna
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.integrations.optuna import PruneTrial

generator = torch.Generator().manual_seed(0)
x = torch.randn(900, 5, generator=generator)
y = (x[:, 0] * x[:, 1] > 0).long()


def objective(trial: optuna.Trial) -> float:
    """What a population cannot change while it trains: its network, and its own sizes."""
    width = trial.suggest_categorical("width", [2, 8, 32])
    mates = trial.suggest_int("mates", 1, 4)
    task = esgd.Supervised(
        lambda: nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 2)),
        F.cross_entropy,
        train=(x[:600], y[:600]),
        fitness=(x[600:], y[600:]),
    )
    recipe = esgd.Recipe(population=4, offspring=8, mates=mates, generations=5, sgd_epochs=1)
    return esgd.fit(task, recipe, seed=0, engine="loop", progress=False, callbacks=[PruneTrial(trial)]).fitness


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.MedianPruner(n_startup_trials=2)
)
study.optimize(objective, n_trials=6)
pruned = sum(trial.state is optuna.trial.TrialState.PRUNED for trial in study.trials)
print(f"best {study.best_value:.3f} with {study.best_params}; {pruned} of {len(study.trials)} trials were pruned")
