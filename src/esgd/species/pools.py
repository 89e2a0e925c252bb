"""The pools an individual's optimizer comes from: "hyper-parameters are randomly selected from a pre-defined range
… an annealing schedule is applied to the range of the learning rate over generations" (§3.3).

The range of generation k is [γ^k a_0, γ^k b_0] with k from 1, as in the paper's tables. Where γ is not given it is
chosen so that γ^K = 0.05. Scaling the range scales the draw, so a draw is a0…b0 first and annealed after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from esgd.errors import RecipeError
from esgd.policies import Policy, check_clip_norm, optimizer_class
from esgd.protocols import Draw
from esgd.schedules import Constant, Schedule
from esgd.species.distributions import Distribution, LogUniform, Uniform, draw

PAPER_MOMENTUM = Uniform(0.1, 0.9)
PAPER_MOMENTUM_PROBABILITY = 0.8  # supplement B: "a 20% chance not using momentum and 80% chance using it"
PAPER_NESTEROV_PROBABILITY = 0.5  # "When using the momentum, there is a 50% chance using the nesterov acceleration"
FINAL_ANNEALING = 0.05

Rate = float | tuple[float, float] | Uniform | LogUniform
"""A learning rate: a number, a range (low, high), or a distribution."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """The paper's SGD pool: learning rate, momentum and Nesterov acceleration at random."""

    lr: Rate
    gamma: float | None = None
    momentum: float | Distribution = PAPER_MOMENTUM
    momentum_probability: float = PAPER_MOMENTUM_PROBABILITY
    nesterov_probability: float = PAPER_NESTEROV_PROBABILITY
    hyper: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = Constant()
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", _rate(self.lr))
        _check(self.lr, self.gamma, self.clip_norm)
        _check_probabilities(momentum=self.momentum_probability, nesterov=self.nesterov_probability)

    def __call__(self, request: Draw) -> Policy:
        moves = _coin(request, "use momentum") < self.momentum_probability
        nesterov = moves and _coin(request, "use nesterov") < self.nesterov_probability
        momentum = draw(self.momentum, request.seeds("momentum")) if moves else 0.0
        own = {"momentum": momentum, "nesterov": nesterov and momentum > 0}
        return _policy(request, "sgd", self, {**own, **_drawn(request, self.hyper)})


@dataclass(frozen=True, kw_only=True)
class Adam:
    """The paper's ADAM pool: "only the learning rate is randomized"; β_1 = 0.9 and β_2 = 0.999 are torch's own."""

    lr: Rate
    gamma: float | None = None
    hyper: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = Constant()
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", _rate(self.lr))
        _check(self.lr, self.gamma, self.clip_norm)

    def __call__(self, request: Draw) -> Policy:
        return _policy(request, "adam", self, _drawn(request, self.hyper))


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Any class of `torch.optim` ("adamw", "rmsprop", …) or "package.module:Class", with ranges for any keyword."""

    name: str
    lr: Rate
    gamma: float | None = None
    hyper: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = Constant()
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        optimizer_class(self.name)
        object.__setattr__(self, "lr", _rate(self.lr))
        _check(self.lr, self.gamma, self.clip_norm)

    def __call__(self, request: Draw) -> Policy:
        return _policy(request, self.name, self, _drawn(request, self.hyper))


def _policy(request: Draw, optimizer: str, pool: Sgd | Adam | Optimizer, hyper: dict[str, Any]) -> Policy:
    annealing = (FINAL_ANNEALING ** (1 / request.generations) if pool.gamma is None else pool.gamma) ** request.k
    lr = annealing * draw(pool.lr, request.seeds("lr"))
    return Policy(
        optimizer=optimizer,
        hyper={"lr": lr, **hyper},
        settings=_drawn(request, pool.settings),
        schedule=pool.schedule,
        annealing=annealing,
        clip_norm=pool.clip_norm,
    )


def _drawn(request: Draw, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: draw(value, request.seeds(name)) for name, value in values.items()}


def _coin(request: Draw, name: str) -> float:
    return Uniform(0.0, 1.0).draw(request.seeds(name))


def _rate(lr: Rate) -> float | Uniform | LogUniform:
    return Uniform(*lr) if isinstance(lr, tuple) and len(lr) == 2 else lr


def _check(lr: Rate, gamma: float | None, clip_norm: float | None) -> None:
    check_clip_norm(clip_norm)
    low = lr.low if isinstance(lr, Uniform | LogUniform) else lr
    if not isinstance(low, float | int) or not 0 <= low < inf:
        raise RecipeError(
            f"lr={lr} is not a learning rate. Give a finite number ≥ 0, a range (low, high), Uniform or LogUniform."
        )
    if gamma is not None and not 0 < gamma <= 1:
        raise RecipeError(
            f"gamma={gamma} is not in (0, 1]. The learning-rate range of generation k is γ^k times the first one. "
            f"Use 0.9 as the paper's speech tables do, 1 for no annealing, or leave it out for γ^K = {FINAL_ANNEALING}."
        )


def _check_probabilities(**probabilities: float) -> None:
    for name, value in probabilities.items():
        if not 0 <= value <= 1:
            raise RecipeError(f"{name}_probability={value} is not a probability. Give a number from 0 to 1.")
