"""A policy: the optimizer π_j that Algorithm 1 picks for individual j, with everything drawn for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import torch

from esgd.errors import RecipeError, did_you_mean
from esgd.schedules import Constant, Schedule
from esgd.spelling import decode, encode

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

    optimizer: str
    hyper: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Constant)
    annealing: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def __str__(self) -> str:
        shown = {**self.hyper, **self.settings}
        return " ".join([self.optimizer, *(f"{name}={_short(value)}" for name, value in shown.items())])

    def record(self) -> dict[str, Any]:
        """One flat JSON object, lossless: `optimizer`, its hyper-parameters, then the rest where it is set."""
        rest = {name: getattr(self, name) for name in _RESERVED[1:]}
        unset = {"settings": {}, "schedule": Constant(), "annealing": 1.0, "clip_norm": None}
        set_ = {name: encode(value) for name, value in rest.items() if value != unset[name]}
        return {"optimizer": self.optimizer, **encode(dict(self.hyper)), **set_}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Policy:
        """The inverse of `record`."""
        hyper = {name: decode(value) for name, value in record.items() if name not in _RESERVED}
        rest = {name: decode(record[name]) for name in _RESERVED[1:] if name in record}
        return Policy(optimizer=record["optimizer"], hyper=hyper, **rest)


def check_clip_norm(clip_norm: float | None) -> None:
    """Refuse a limit that would turn gradients around."""
    if clip_norm is not None and not clip_norm > 0:
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
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise RecipeError(
                f"optimizer={name!r} cannot be imported ({error}). An optimizer is a class of torch.optim in lower "
                f"case, or 'package.module:Class' that Python can import. Check the spelling and PYTHONPATH."
            ) from error
        return _checked(name, found)
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
