"""What individuals are trained with, by `configure_optimizers` of a `LightningModule`.

| of the module                           | what it becomes                                                           |
|-----------------------------------------|---------------------------------------------------------------------------|
| the optimizer, its keywords             | the same in every policy                                                  |
| the rate of its first group             | the middle of a log-uniform range                                         |
| other rates, other weight decays        | groups: factors on that rate, and decays, by the names of the parameters  |
| parameters that the optimizer lacks     | a group with the factor 0                                                 |
| schedulers                              | schedules of the core, as far as it has them                              |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from glob import escape
from inspect import signature
from itertools import takewhile
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from esgd.errors import TaskError
from esgd.groups import Change, Group, Groups
from esgd.protocols import Species
from esgd.schedules import CosineRun, Schedule, Steps
from esgd.species import Inherited, LogUniform, Optimizer

SPREAD = 4.0
"""How far a learning rate may be from that of `configure_optimizers`, as a factor."""

NOT_DRAWN = ("lr", "foreach", "fused", "capturable", "differentiable")
"""Keywords of an optimizer that have a range of their own, or that the engine chooses."""

OF_A_GROUP = ("params", "param_names", "initial_lr", "lr", "weight_decay")
"""What groups of parameters may differ in."""

LONGEST = 100_000  # epochs that are searched for drops of a rate


def optimizer_of(module: Any) -> tuple[torch.optim.Optimizer, list[Any]]:
    """The one optimizer of a module, and its schedulers; refuses by name what has none or several."""
    if not module.automatic_optimization:
        raise TaskError(
            f"{type(module).__name__} has automatic_optimization=False. Policies of a population train a network, so "
            f"its own optimization cannot be used. Return a loss from training_step."
        )
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
    return found, [each["scheduler"] if isinstance(each, Mapping) else each for each in schedulers]


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
    hyper = {
        name: value
        for name, value in group.items()
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
            members.setdefault(changes.get(id(parameter), Change(lr_factor=0.0)), []).append(name)
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
    """The learning rate of a group before any scheduler has changed it."""
    return float(group.get("initial_lr", group["lr"]))


def _name(kind: type[torch.optim.Optimizer]) -> str:
    """The optimizer as a policy names it."""
    if getattr(torch.optim, kind.__name__, None) is kind:
        return str(kind.__name__).lower()
    if "." in kind.__qualname__ or kind.__module__ == "__main__":
        raise TaskError(
            f"the optimizer {kind.__qualname__} cannot be named in a recipe: it is not at the top of a module that can "
            f"be imported. Put it there, or use one of torch.optim."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def schedule_of(schedulers: list[Any], optimizer: torch.optim.Optimizer) -> tuple[Schedule, str]:
    """The schedule of policies, and the name of the scheduler that it does not follow."""
    if not schedulers:
        return CosineRun(), ""
    (scheduler, *more) = schedulers
    rate = _rate(optimizer.param_groups[0])
    kind = type(scheduler)
    if more:
        return CosineRun(), ", ".join(type(each).__name__ for each in schedulers)
    if kind is lr_scheduler.CosineAnnealingLR and 0 <= scheduler.eta_min <= rate:
        return CosineRun(floor=scheduler.eta_min / rate), ""
    if kind is lr_scheduler.MultiStepLR and all(times == 1 for times in scheduler.milestones.values()):
        return Steps(after=tuple(sorted(scheduler.milestones)), factor=scheduler.gamma), ""
    if kind is lr_scheduler.StepLR and 0 < scheduler.gamma < 1:
        drops = takewhile(lambda n: scheduler.gamma**n > 1e-6, range(1, LONGEST))
        return Steps(after=tuple(scheduler.step_size * n for n in drops), factor=scheduler.gamma), ""
    return CosineRun(), kind.__name__
