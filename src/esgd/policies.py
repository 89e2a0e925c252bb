"""A policy: the optimizer π_j that Algorithm 1 picks for individual j, with everything drawn for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf, isnan
from typing import Any

import torch

from esgd.errors import RecipeError, did_you_mean
from esgd.schedules import Constant, Schedule
from esgd.spelling import construct, decode, encode
from esgd.trust import NAMES_CODE, imported

__all__ = ["Policy"]

_RESERVED = ("optimizer", "settings", "schedule", "annealing", "clip_norm")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What one individual trains with during one SGD step.

    | field       | meaning                                                                            |
    |-------------|------------------------------------------------------------------------------------|
    | `optimizer` | a class of `torch.optim` in lower case ("sgd", "adamw"), or "package.module:Class" |
    | `hyper`     | its keyword arguments; `lr` is the one really applied, annealing included          |
    | `settings`  | what the task understands: batch size, dropout, …                                  |
    | `schedule`  | factor on `lr` inside the generation                                               |
    | `annealing` | γ^k, the part of `lr` that is owed to the generation, so lr / annealing is the draw |
    | `clip_norm` | largest gradient norm, or None                                                     |

    >>> print(Policy(optimizer="adam", hyper={"lr": 2.7e-4}))
    adam lr=0.00027
    """

    optimizer: str = field(metadata=NAMES_CODE)
    hyper: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Constant)
    annealing: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, str):
            raise RecipeError(
                f"optimizer={self.optimizer!r} is a {type(self.optimizer).__name__}. A policy names its optimizer, so "
                f"that it can be written down. Use a class of torch.optim in lower case, or 'package.module:Class'."
            )
        for name in ("hyper", "settings"):
            if not isinstance(getattr(self, name), Mapping):
                raise RecipeError(f"{name}={getattr(self, name)!r} is not a mapping. Use for example {{'lr': 0.1}}.")
        check_settings(self.hyper)
        check_clip_norm(self.clip_norm)

    def __str__(self) -> str:
        return phrase({"optimizer": self.optimizer, **self.hyper, "settings": self.settings})

    def record(self) -> dict[str, Any]:
        """One flat JSON object, lossless: `optimizer`, its hyper-parameters, then the rest where it is set."""
        rest = {name: getattr(self, name) for name in _RESERVED[1:]}
        unset = {"settings": {}, "schedule": Constant(), "annealing": 1.0, "clip_norm": None}
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
    shown = {**hyper, **record.get("settings", {})}
    return " ".join([record["optimizer"], *(f"{name}={_short(value)}" for name, value in shown.items())])


def check_settings(hyper: Mapping[str, Any]) -> None:
    """Refuse numbers that no optimizer can work with."""
    for name, value in hyper.items():
        if isinstance(value, float) and (isnan(value) or (name == "lr" and not 0 <= value < inf)):
            raise RecipeError(
                f"{name}={value} of a policy is no number to train with. A learning rate is finite and not negative, "
                f"and no hyper-parameter is NaN. Correct it."
            )


def check_clip_norm(clip_norm: float | None) -> None:
    """Refuse a limit that would turn gradients around."""
    if clip_norm is not None and not (isinstance(clip_norm, int | float) and clip_norm > 0):
        raise RecipeError(
            f"clip_norm={clip_norm} is not above 0. It is the largest gradient norm that is let through. Use None for "
            f"no clipping."
        )


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
