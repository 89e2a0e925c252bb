"""What individuals are trained with, by `configure_optimizers` of a `LightningModule`.

| of the module                           | what it becomes                                                           |
|-----------------------------------------|---------------------------------------------------------------------------|
| the optimizer, its keywords             | the same in every policy                                                  |
| the rate of its first group             | the middle of a log-uniform range                                         |
| other rates, other weight decays        | groups: factors on that rate, and decays, by the names of the parameters  |
| parameters that the optimizer lacks     | refused by name: a population would train them                            |
| one cosine over all epochs              | the same over the run; no other scheduler is followed                     |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from glob import escape
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from esgd.errors import TaskError
from esgd.groups import Change, Group, Groups
from esgd.integrations.lightning_task import without_trainer
from esgd.protocols import Species
from esgd.schedules import CosineRun, Schedule
from esgd.species import Inherited, LogUniform, Optimizer

NOT_DRAWN = ("lr", "foreach", "fused", "capturable", "differentiable")
"""Keywords of an optimizer that have a range of their own, or that the engine chooses."""

OF_A_GROUP = ("params", "param_names", "initial_lr", "max_lr", "min_lr", "lr", "weight_decay")
"""What groups of parameters may differ in."""

SPREAD = 4.0
"""How far a learning rate may be from the module's, as a factor; chosen by judgement."""

CYCLED = ("momentum", "betas")
"""What `OneCycleLR` overwrites in the groups. The defaults of the optimizer keep what it was made with."""


def optimizer_of(module: Any) -> tuple[torch.optim.Optimizer, list[Any]]:
    """The one optimizer of a module, and its schedulers as Lightning writes them; refuses by name what has none or
    several, or not all parameters."""
    if not module.automatic_optimization:
        raise TaskError(
            f"{type(module).__name__} has automatic_optimization=False. Policies of a population train a network, so "
            f"its own optimization cannot be used. Return a loss from training_step."
        )
    with without_trainer("configure_optimizers"):
        found: Any = module.configure_optimizers()
    schedulers: Any = ()
    if isinstance(found, tuple) and len(found) == 2 and all(isinstance(each, list | tuple) for each in found):
        found, schedulers = found
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, Mapping):
        schedulers = [found["lr_scheduler"]] if "lr_scheduler" in found else []
        found = found.get("optimizer")
    if not isinstance(found, torch.optim.Optimizer):
        several = f"{len(found)} optimizers" if isinstance(found, list | tuple) else f"{type(found).__name__}"
        raise TaskError(
            f"configure_optimizers of {type(module).__name__} returned {several}. An individual is trained by one "
            f"optimizer. Return one."
        )
    _check_complete(found, module)
    return found, [each if isinstance(each, Mapping) else {"scheduler": each} for each in schedulers]


def _check_complete(optimizer: torch.optim.Optimizer, module: nn.Module) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    names = [name for name, _ in trained]
    if left := [name for name, parameter in trained if id(parameter) not in held]:
        raise TaskError(
            f"configure_optimizers leaves out {', '.join(_patterns(left, names))}. A population trains, mixes and "
            f"mutates every parameter that requires a gradient. To keep them as they are, call requires_grad_(False) "
            f"on them in __init__."
        )


def species_of(
    optimizer: torch.optim.Optimizer,
    module: nn.Module,
    *,
    schedule: Schedule,
    clip_norm: float | None = None,
    accumulate: int = 1,
) -> Species:
    """Learning rates around the module's, with its optimizer, keywords and groups."""
    kind, group = type(optimizer), optimizer.param_groups[0]
    known, rate = signature(kind).parameters, _rate(group)
    if not rate > 0:
        raise TaskError(
            f"the learning rate of configure_optimizers is {rate}. Rates are drawn around it: give one above 0 to the "
            f"first group."
        )
    cycled = {name: optimizer.defaults[name] for name in CYCLED if "max_lr" in group and name in group}
    hyper = {
        name: value
        for name, value in {**group, **cycled}.items()
        if name in known and name not in ("params", *NOT_DRAWN) and value != known[name].default
    }
    pool = Optimizer(
        name=_name(kind),
        lr=LogUniform(rate / SPREAD, rate * SPREAD),
        gamma=1.0,
        hyper=hyper,
        schedule=schedule,
        clip_norm=clip_norm,
        accumulate=accumulate,
        groups=groups_of(optimizer, module),
    )
    return Inherited(species=pool, probability=0.75, jitter=0.3, offspring_only=True)


def groups_of(optimizer: torch.optim.Optimizer, module: nn.Module) -> Groups:
    """The groups of parameters that differ from the first one in rate or weight decay, by the patterns of their names;
    refuses by name what else they differ in."""
    first, *others = optimizer.param_groups
    for other in others:
        different = [name for name in first if name not in OF_A_GROUP and other.get(name) != first[name]]
        if different:
            raise TaskError(
                f"configure_optimizers has groups of parameters with other values of {', '.join(different)}. Groups of "
                f"a policy differ in lr and weight_decay. Use one value, or recipe=Recipe(species=…)."
            )
    changes = {id(parameter): _change(group, first) for group in (first, *others) for parameter in group["params"]}
    names, members = list[str](), dict[Change, list[str]]()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            names.append(name)
            members.setdefault(changes[id(parameter)], []).append(name)
    return tuple(
        Group(names=pattern, lr_factor=change.lr_factor, weight_decay=change.weight_decay)
        for change, chosen in members.items()
        if change != Change()
        for pattern in _patterns(chosen, names)
    )


def _change(group: Mapping[str, Any], first: Mapping[str, Any]) -> Change:
    """How a group differs from the first one."""
    same = group.get("weight_decay") == first.get("weight_decay")
    return Change(
        lr_factor=None if _rate(group) == _rate(first) else _rate(group) / _rate(first),
        weight_decay=None if same else float(group["weight_decay"]),
    )


def _patterns(chosen: Collection[str], names: Sequence[str]) -> list[str]:
    """Patterns that fit the chosen names and no others: a layer where all of it is chosen, else the name itself.

    >>> _patterns(["0.weight", "0.bias", "1.bias"], ["0.weight", "0.bias", "1.weight", "1.bias"])
    ['0.*', '1.bias']
    """
    left = set(names) - set(chosen)
    parents = {".".join(parts[:n]) for parts in (name.split(".") for name in left) for n in range(1, len(parts))}

    def widest(name: str) -> str:
        parts = name.split(".")
        layers = (".".join(parts[:n]) for n in range(1, len(parts)))
        layer = next((each for each in layers if each not in parents), None)
        return escape(name) if layer is None else f"{escape(layer)}.*"

    return list(dict.fromkeys(map(widest, chosen)))


def _rate(group: Mapping[str, Any]) -> float:
    """The learning rate of a group before any scheduler has changed it; with `OneCycleLR`, the largest."""
    return float(group.get("max_lr", group.get("initial_lr", group["lr"])))


def _name(kind: type[torch.optim.Optimizer]) -> str:
    """The optimizer as a policy names it."""
    closure = signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise TaskError(
            f"the optimizer {kind.__qualname__} computes the loss several times in a step, and its state cannot be "
            f"carried from generation to generation. Use a first-order one such as AdamW, or recipe=Recipe(…)."
        )
    if getattr(torch.optim, kind.__name__, None) is kind:
        return str(kind.__name__).lower()
    if "." in kind.__qualname__ or kind.__module__ == "__main__":
        raise TaskError(
            f"the optimizer {kind.__qualname__} cannot be named in a recipe: it is not at the top of a module that can "
            f"be imported. Put it there, or use one of torch.optim."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def schedule_of(
    schedulers: Sequence[Mapping[str, Any]], optimizer: torch.optim.Optimizer, epochs: int | None
) -> tuple[Schedule, str]:
    """The schedule of policies, and the names of the schedulers that it does not follow.

    One cosine over all epochs is followed: an individual is trained for other epochs than one network, and only that
    has the same meaning for both.
    """
    rate = _rate(optimizer.param_groups[0])
    for each in schedulers:
        if isinstance(each["scheduler"], lr_scheduler.CyclicLR):
            raise TaskError(
                "CyclicLR overwrites the learning rate that configure_optimizers gives, so there is none to draw rates "
                "around. Leave it out, or use recipe=Recipe(species=…)."
            )
    if [_is_cosine(each, rate, epochs) for each in schedulers] == [True]:
        return CosineRun(floor=schedulers[0]["scheduler"].eta_min / rate), ""
    return CosineRun(), ", ".join(names_of(schedulers))


def names_of(schedulers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of their classes."""
    return [type(each["scheduler"]).__name__ for each in schedulers]


def _is_cosine(config: Mapping[str, Any], rate: float, epochs: int | None) -> bool:
    """Whether a scheduler is half a cosine over so many epochs, and no more."""
    scheduler, usual = config["scheduler"], {"interval": "epoch", "frequency": 1}
    return (
        type(scheduler) is lr_scheduler.CosineAnnealingLR
        and scheduler.T_max == epochs
        and 0 <= scheduler.eta_min <= rate
        and all(config.get(name, value) == value for name, value in usual.items())
    )
