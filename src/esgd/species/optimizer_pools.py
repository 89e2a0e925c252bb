"""The pools an individual's optimizer comes from: "hyper-parameters are randomly selected from a pre-defined range
… an annealing schedule is applied to the range of the learning rate over generations" (§3.3).

All pools take `schedule`, `clip_norm`, `accumulate` (a number, or a distribution of whole numbers) and `groups` of a
`Policy`; `groups` in any of the forms of `esgd.groups`.

The range of generation k is [γ^k a_0, γ^k b_0] with k from 1, as in the paper's tables. Where γ is not given it is
chosen so that γ^K = 0.05. Scaling the range scales the draw, so a draw is a0…b0 first and annealed after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

from esgd._names.trust import NAMES_CODE
from esgd._validation import check_field, check_function, check_number
from esgd.errors import RecipeError, did_you_mean, shown
from esgd.groups import decays, settled_groups
from esgd.policies import ACCUMULATE, SCHEDULE, Policy, check_clip_norm, optimizer_class
from esgd.protocols import Draw
from esgd.ranges import usual_top
from esgd.schedules import Constant, Schedule
from esgd.species.distributions import (
    AutoRate,
    Choice,
    Distribution,
    Integers,
    LogUniform,
    Uniform,
    draw,
    is_distribution,
)

PAPER_MOMENTUM = Uniform(0.1, 0.9)
PAPER_MOMENTUM_PROBABILITY = 0.8  # supplement B: "a 20% chance not using momentum and 80% chance using it"
PAPER_NESTEROV_PROBABILITY = 0.5  # "When using the momentum, there is a 50% chance using the nesterov acceleration"
FINAL_ANNEALING = 0.05

Rate = float | tuple[float, float] | Distribution | AutoRate | str
"""A learning rate: a number, a range (low, high), a distribution, or "auto" for a range that is found."""

_LR = (
    "Algorithm 1 draws a learning rate from a range. Give a finite number ≥ 0, a range (low, high), Uniform or "
    "LogUniform, a continuous distribution of your own, or 'auto' for a range that is found."
)
_GAMMA = (
    "The learning-rate range of generation k is γ^k times the first one. Use 0.9 as the paper's speech tables do, 1 "
    f"for no annealing, or leave it out for γ^K = {FINAL_ANNEALING}."
)
_MOMENTUM = (
    "It is the momentum where momentum is used. Give a number ≥ 0, or a distribution: Uniform(0.1, 0.9) in the paper."
)
_OWN = {"lr": "lr", "momentum": "momentum and momentum_probability", "nesterov": "nesterov_probability"}
_PROBABILITY = (
    "It is a probability: the paper uses momentum with 0.8, and then Nesterov acceleration with 0.5. Give a number "
    "from 0 to 1."
)


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
    accumulate: int | Distribution = 1
    groups: Any = ()

    def __post_init__(self) -> None:
        _check(self, "sgd", own=("lr", "momentum", "nesterov"))
        if not is_distribution(self.momentum):
            check_field(self, "momentum", at_least=0, meaning=_MOMENTUM)
        check_field(self, "momentum_probability", at_least=0, at_most=1, meaning=_PROBABILITY)
        check_field(self, "nesterov_probability", at_least=0, at_most=1, meaning=_PROBABILITY)

    def __call__(self, request: Draw) -> Policy:
        moves = _coin(request, "use momentum") < self.momentum_probability
        nesterov = moves and _coin(request, "use nesterov") < self.nesterov_probability
        drawn = draw(self.momentum, request.seeds("momentum")) if moves else 0.0
        momentum = check_number("momentum", drawn, at_least=0, meaning=f"{self.momentum} drew it. {_MOMENTUM}")
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
    accumulate: int | Distribution = 1
    groups: Any = ()

    def __post_init__(self) -> None:
        _check(self, "adam")

    def __call__(self, request: Draw) -> Policy:
        return _policy(request, "adam", self, _drawn(request, self.hyper))


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Any class of `torch.optim` ("adamw", "rmsprop", …) or "package.module:Class", with ranges for any keyword."""

    name: str = field(metadata=NAMES_CODE)
    lr: Rate
    gamma: float | None = None
    hyper: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = Constant()
    clip_norm: float | None = None
    accumulate: int | Distribution = 1
    groups: Any = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise RecipeError(
                f"name={self.name!r} is not a name. A policy names its optimizer, so that it can be written down. Use "
                f"a class of torch.optim in lower case, such as 'adamw', or 'package.module:Class'."
            )
        _check(self, self.name)

    def __call__(self, request: Draw) -> Policy:
        return _policy(request, self.name, self, _drawn(request, self.hyper))


def _policy(request: Draw, optimizer: str, pool: Sgd | Adam | Optimizer, hyper: dict[str, Any]) -> Policy:
    annealing = (FINAL_ANNEALING ** (1 / request.generations) if pool.gamma is None else pool.gamma) ** request.k
    name, rates = optimizer_of(pool), pool.lr
    if isinstance(rates, AutoRate):
        rates = rates.below(_top(request, pool), name)
    drawn = check_number("lr", draw(rates, request.seeds("lr")), at_least=0, meaning=f"{pool.lr} drew it. {_LR}")
    return Policy(
        optimizer=optimizer,
        hyper={"lr": annealing * drawn, **hyper},
        settings=_drawn(request, pool.settings),
        schedule=pool.schedule,
        annealing=annealing,
        clip_norm=pool.clip_norm,
        accumulate=draw(pool.accumulate, request.seeds("accumulate")),
        groups=pool.groups,
    )


def _top(request: Draw, pool: Sgd | Adam | Optimizer) -> float:
    """What the range test has found for this pool, or else for its optimizer; where there was none, as when a run is
    only planned, the usual."""
    optimizer = optimizer_of(pool)
    return request.tops.get(repr(pool), request.tops.get(optimizer, usual_top(optimizer)))


def optimizer_of(pool: Sgd | Adam | Optimizer) -> str:
    """The name by which a range test knows the optimizer of a pool."""
    name = pool.name if isinstance(pool, Optimizer) else type(pool).__name__
    return name if ":" in name else name.lower()


def _drawn(request: Draw, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: draw(value, request.seeds(name)) for name, value in values.items()}


def _coin(request: Draw, name: str) -> float:
    return Uniform(0.0, 1.0).draw(request.seeds(name))


def _check(pool: Sgd | Adam | Optimizer, optimizer: str, own: tuple[str, ...] = ("lr",)) -> None:
    """Settle what all pools share; `own` are the keywords of the optimizer that the pool itself sets."""
    lr = pool.lr
    if isinstance(lr, str) and lr == "auto":
        object.__setattr__(pool, "lr", AutoRate())
    elif isinstance(lr, tuple) and len(lr) == 2:
        object.__setattr__(pool, "lr", Uniform(*lr))
    _check_rate(pool)
    if pool.gamma is not None:
        check_field(pool, "gamma", above=0, at_most=1, meaning=_GAMMA)
    check_clip_norm(pool.clip_norm)
    if not is_distribution(pool.accumulate):
        check_field(pool, "accumulate", at_least=1, whole=True, meaning=ACCUMULATE)
    object.__setattr__(pool, "groups", settled_groups(pool.groups))
    check_function("schedule", pool.schedule, "moment", meaning=SCHEDULE)
    for name in ("hyper", "settings"):
        if not isinstance(getattr(pool, name), Mapping):
            raise RecipeError(
                f"{name}={shown(getattr(pool, name))} is not a mapping. It names keywords and what each is drawn from. "
                f"Use for example {name}={{'weight_decay': 1e-4}}."
            )
    _check_keywords(pool.hyper, optimizer, own)
    known = _keywords(optimizer)
    if decays(pool.groups) and known is not None and "weight_decay" not in known:
        raise RecipeError(
            f"groups={shown(pool.groups)} has a weight decay, but optimizer={optimizer!r} takes no 'weight_decay'. "
            f"Leave it out, or use an optimizer with weight decay, such as 'adamw'."
        )


def _check_rate(pool: Sgd | Adam | Optimizer) -> None:
    if isinstance(pool.lr, Uniform | LogUniform):
        check_number("lr.low", pool.lr.low, at_least=0, meaning=_LR)
    elif isinstance(pool.lr, Integers | Choice):
        raise RecipeError(f"lr={pool.lr} is not a range of learning rates. {_LR}")
    elif not isinstance(pool.lr, AutoRate) and not is_distribution(pool.lr):
        check_field(pool, "lr", at_least=0, meaning=_LR)


def _check_keywords(hyper: Mapping[str, Any], optimizer: str, own: tuple[str, ...]) -> None:
    """Refuse what the pool sets itself, and what the optimizer does not take."""
    for name in own:
        if name in hyper:
            raise RecipeError(
                f"hyper has {name}={hyper[name]!r}, which the pool draws and anneals by its own rule. Two values for "
                f"one keyword contradict each other. Use {_OWN[name]} of the pool instead."
            )
    takes = _keywords(optimizer)
    if takes is None:
        return
    known = [name for name in takes if name not in own]
    for name in hyper:
        if name not in known:
            raise RecipeError(
                f"hyper has {name}={hyper[name]!r}, but optimizer={optimizer!r} takes no {name!r}. What is drawn for "
                f"an individual becomes the keywords of its optimizer. {did_you_mean(str(name), known)} What the task "
                f"understands belongs into settings."
            )


def _keywords(optimizer: str) -> list[str] | None:
    """What an optimizer takes besides the parameters; None if it takes anything."""
    takes = signature(optimizer_class(optimizer)).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in takes.values()):
        return None
    return [name for name in takes if name != "params"]
