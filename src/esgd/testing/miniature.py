"""A task, a recipe and policies so small that an engine can be checked on them in a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional as F

from esgd.generation import State
from esgd.operators import Gaussian
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import Role, Session
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.schedules import Cosine
from esgd.tasks import Supervised

SEED = 7

RECIPE = Recipe(
    population=5,
    offspring=12,
    mates={1, 2},
    elites=3,
    generations=2,
    mutation=Gaussian(sigma=0.5),
)

POLICIES = (
    Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    Policy(optimizer="adam", hyper={"lr": 0.01, "betas": (0.9, 0.999)}),
    Policy(
        optimizer="sgd",
        hyper={"lr": 0.2, "weight_decay": 0.01},
        schedule=Cosine(warmup=0.2),
        settings={"batch_size": 16, "label_smoothing": 0.1, "mixup": 0.2},
        accumulate=2,
    ),
    Policy(optimizer="sgd", hyper={"lr": 1e38}),  # diverges
    Policy(optimizer="adamw", hyper={"lr": 0.003}, clip_norm=0.1, groups="no_decay"),
)


def births(start: Population, session: Session, seeds: Seeds) -> list[Birth]:
    """Offspring of which every other one hardly mutates, so that some become elites and some can be aborted."""
    stage, state = next(RECIPE.stages()), State(0, start, start.champion)
    bred = RECIPE.breed(start, [Role.HELD] * len(start), stage, state, v=1, session=session, seeds=seeds)
    return [replace(birth, sigma=birth.sigma / 25) if number % 2 else birth for number, birth in enumerate(bred)]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def normalised() -> nn.Module:
    # No bias that the normalisation takes out again: its gradient is mere rounding, and ADAM steps by its sign.
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))


def miniature(make_model: Callable[[], nn.Module]) -> Supervised:
    """Three classes in six dimensions; the fitness has four parts, so there is something to abort."""
    x = torch.randn(300, 6, generator=Seeds(SEED)("x"))
    y = (x[:, :3] + x[:, 3:]).argmax(dim=1)
    return Supervised(make_model, F.cross_entropy, train=(x[:60], y[:60]), fitness=(x[60:], y[60:]), batch_size=20)
