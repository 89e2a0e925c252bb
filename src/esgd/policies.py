"""A policy: the optimizer π_j that Algorithm 1 picks for individual j, with everything drawn for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from math import inf, isnan
from numbers import Real
from typing import Any

import torch

from esgd._names.trust import NAMES_CODE, imported
from esgd._serialization import construct, decode, encode
from esgd._validation import check_field, check_function, check_number
from esgd.errors import RecipeError, did_you_mean, shown
from esgd.groups import settled_groups
from esgd.schedules import Constant, Schedule

__all__ = ["Policy"]

SCHEDULE = "It is a function from a Moment to a factor on the learning rate. Use one of esgd.schedules."
GREATEST = torch.finfo(torch.float32).max
"""What torch refuses to multiply a float32 by if it is larger."""

_LR = "A learning rate of a policy is a finite number, not negative. Correct it."
_CLIP = "It is the largest gradient norm that is let through. Use None for no clipping."
ACCUMULATE = (
    "It is the number of batches whose mean gradient one step of the optimizer takes. Use 1 for each by itself."
)
_RESERVED = ("optimizer", "settings", "schedule", "annealing", "clip_norm", "accumulate", "groups")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What one individual trains with during one SGD step.

    | field        | meaning                                                                              |
    |--------------|--------------------------------------------------------------------------------------|
    | `optimizer`  | a class of `torch.optim` in lower case ("sgd", "adamw"), or "package.module:Class"   |
    | `hyper`      | its keyword arguments; `lr` is applied as it is, annealing included                  |
    | `settings`   | settings of the task: batch size, dropout, …                                         |
    | `schedule`   | factor on `lr` inside the generation                                                 |
    | `annealing`  | γ^k, the factor of the generation in `lr`; lr / annealing is the drawn value         |
    | `clip_norm`  | largest gradient norm, or None                                                       |
    | `accumulate` | batches whose mean gradient one step takes; the last step of an epoch takes the rest |
    | `groups`     | parameters with another learning rate or weight decay; see `esgd.groups`             |

    >>> print(Policy(optimizer="adam", hyper={"lr": 2.7e-4}))
    adam lr=0.00027
    """

    optimizer: str = field(metadata=NAMES_CODE)
    hyper: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Constant)
    annealing: float = 1.0
    clip_norm: float | None = None
    accumulate: int = 1
    groups: Any = ()  # settled to a tuple of `ParameterGroup`

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, str):
            raise RecipeError(
                f"optimizer={self.optimizer!r} is a {type(self.optimizer).__name__}. A policy names its optimizer, so "
                f"that it can be written down. Use a class of torch.optim in lower case, or 'package.module:Class'."
            )
        for name in ("hyper", "settings"):
            if not isinstance(getattr(self, name), Mapping):
                raise RecipeError(
                    f"{name}={shown(getattr(self, name))} is not a mapping. Use for example {{'lr': 0.1}}."
                )
        check_settings(self.hyper)
        check_function("schedule", self.schedule, "moment", meaning=SCHEDULE)
        check_field(self, "annealing", at_least=0, meaning="It is the factor γ^k in the learning rate. Use 1 for none.")
        check_clip_norm(self.clip_norm)
        check_field(self, "accumulate", at_least=1, whole=True, meaning=ACCUMULATE)
        object.__setattr__(self, "groups", settled_groups(self.groups))

    def __str__(self) -> str:
        return phrase({"optimizer": self.optimizer, **self.hyper, "settings": self.settings})

    def record(self) -> dict[str, Any]:
        """One flat JSON object, lossless: `optimizer`, its hyper-parameters, then the rest where it is set."""
        rest = {name: getattr(self, name) for name in _RESERVED[1:]}
        unset = {"settings": {}, "schedule": Constant(), "annealing": 1.0, "clip_norm": None}
        unset |= {"accumulate": 1, "groups": ()}
        set_ = {name: encode(value) for name, value in rest.items() if value != unset[name]}
        return {"optimizer": self.optimizer, **encode(dict(self.hyper)), **set_}

    @staticmethod
    def from_record(record: Mapping[str, Any], *, allow: Collection[str] = ()) -> Policy:
        """The inverse of `record`; `allow` has the packages whose code it may name."""
        read = {name: decode(value, allow=allow) for name, value in record.items()}
        hyper = {name: value for name, value in read.items() if name not in _RESERVED}
        rest = {name: read[name] for name in _RESERVED if name in read}
        return construct(Policy, {"hyper": hyper, **rest}, allow)  # type: ignore[no-any-return]


def phrase(record: Mapping[str, Any]) -> str:
    """A policy's record in words.

    >>> phrase({"optimizer": "adam", "lr": 2.7e-4, "settings": {"batch_size": 32}})
    'adam lr=0.00027 batch_size=32'
    """
    hyper = {name: value for name, value in record.items() if name not in _RESERVED}
    told = {**hyper, **record.get("settings", {})}
    return " ".join([record["optimizer"], *(f"{name}={_short(value)}" for name, value in told.items())])


def check_settings(hyper: Mapping[str, Any]) -> None:
    """Refuse numbers that no optimizer can work with."""
    for name, value in hyper.items():
        if name == "lr":
            check_number("lr", value, at_least=0, at_most=GREATEST, meaning=_LR)
        if isinstance(value, float) and isnan(value):
            raise RecipeError(f"{name}={value} of a policy is no number to train with. Correct it.")


def check_policy(policy: Any, *, with_rate: bool = False) -> None:
    """Refuse what is no policy, or one without the learning rate that is to be annealed."""
    if not isinstance(policy, Policy):
        raise RecipeError(f"policy={shown(policy)} is not a Policy. Use Policy(optimizer='sgd', hyper={{'lr': 0.1}}).")
    if with_rate and "lr" not in policy.hyper:
        raise RecipeError(f"policy={policy} has no lr, which is what is annealed. Give one in its `hyper`.")


def check_trainable(policy: Policy) -> None:
    """Refuse numbers that torch cannot multiply weights by, what it would refuse in the first step only, and what could
    not be written down."""
    usual = _defaults(policy.optimizer)
    for name, value in policy.hyper.items():
        if isinstance(value, int | float) and GREATEST < abs(value) < inf:
            raise RecipeError(f"{name}={shown(value)} of a policy is too large to train with in float32. Correct it.")
        if isinstance(usual.get(name), bool) and not isinstance(value, bool):
            raise RecipeError(f"{name}={shown(value)} of {policy.optimizer!r} is neither true nor false. Correct it.")
        if isinstance(usual.get(name), int | float) and not isinstance(value, Real):
            raise RecipeError(f"{name}={shown(value)} of {policy.optimizer!r} is not a number. Correct it.")
    policy.record()


@cache
def _defaults(name: str) -> Mapping[str, Any]:
    """What a torch optimizer takes unless it is told; nothing of others, which may take what they like, and whose code
    is not imported to be asked."""
    if ":" in name:
        return {}
    return {key: each.default for key, each in signature(optimizer_class(name)).parameters.items()}


def check_clip_norm(clip_norm: float | None) -> None:
    """Refuse a limit that is not positive."""
    if clip_norm is not None:
        check_number("clip_norm", clip_norm, above=0, meaning=_CLIP)


@cache
def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class behind `Policy.optimizer`.

    >>> optimizer_class("adamw")
    <class 'torch.optim.adamw.AdamW'>
    """
    if ":" in name:
        return _checked(name, imported(name))
    classes = {key.lower(): value for key, value in vars(torch.optim).items() if isinstance(value, type)}
    if name.lower() not in classes:
        raise RecipeError(
            f"optimizer={name!r} is not in torch.optim. {did_you_mean(name.lower(), classes)} "
            f"For a class of your own write 'package.module:Class'."
        )
    return _checked(name, classes[name.lower()])


def _checked(name: str, found: object) -> type[torch.optim.Optimizer]:
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
        return found
    raise RecipeError(f"optimizer={name!r} is {found!r}, not a torch.optim.Optimizer class.")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
