"""torch's optimizers, built from policies, and their state as tensors that are kept between generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from esgd._limits import shortage
from esgd.errors import RecipeError, shown
from esgd.genome import Genome
from esgd.groups import Change, resolved
from esgd.policies import Policy, optimizer_class
from esgd.population import OptimizerState

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)


def kept_state(policy: Policy, state: Mapping[str, Any], changes: Sequence[Change] = ()) -> OptimizerState:
    """An optimizer's state dict as tensors by name, each with the number that its parameter has in the network."""
    tensors, numbers = {}, _numbers(changes)
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{numbers[index] if numbers else index}/{name}"] = value.detach().cpu().clone()
            elif value is not None:
                raise RecipeError(
                    f"the state {name!r} of optimizer {policy.optimizer!r} is a {type(value).__name__}, which cannot "
                    f"be carried between generations; only tensors can. Use baggage=Fresh()."
                )
    return OptimizerState(state_kind(policy), tensors)


def state_kind(policy: Policy) -> str:
    """What state an optimizer keeps depends on its class and on what is switched on: momentum, amsgrad, centered, …"""
    switched_on = sorted(name for name, value in policy.hyper.items() if value and name not in ("lr", "nesterov"))
    return " ".join([policy.optimizer, *switched_on])


def build_optimizer(
    parameters: list[torch.nn.Parameter],
    policy: Policy,
    carried: OptimizerState | None = None,
    *,
    fused: bool = True,
    changes: Sequence[Change] = (),
) -> torch.optim.Optimizer:
    """The policy's optimizer, with what was drawn and nothing else; carried state never brings old hyper-parameters.

    `changes` are what the policy's groups change for each parameter; without groups there are none.
    """
    cls = optimizer_class(policy.optimizer)
    may_fuse = fused and cls in FUSED and not {"foreach", "fused", "differentiable"} & set(policy.hyper)
    faster = {"fused": True} if may_fuse else {}
    members = _members(changes)
    grouped = [_torch_group(parameters, *each) for each in members.items()] if members else parameters
    try:
        optimizer = cls(grouped, **policy.hyper, **faster)  # type: ignore[arg-type]
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        if shortage(error):
            raise  # the engine says which
        raise RecipeError(
            f"{cls.__name__} refuses {shown(dict(policy.hyper))}: {error}. The species draws keyword arguments of that "
            f"class; correct its `hyper` ranges."
        ) from error
    for group, change in zip(optimizer.param_groups, members, strict=False):
        if change.lr_factor is not None:
            group["lr"] = group["lr"] * change.lr_factor
    if carried is not None and carried.kind == state_kind(policy):
        numbers = _numbers(changes)
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in carried.of_optimizer.items():
            number, _, name = key.partition("/")
            index = numbers.index(int(number)) if numbers else int(number)
            state.setdefault(index, {})[name] = tensor.clone()
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return optimizer


def _members(changes: Sequence[Change]) -> dict[Change, list[int]]:
    """The numbers of the parameters in each of torch's groups: those for which the same is changed."""
    found = dict[Change, list[int]]()
    for number, change in enumerate(changes):
        found.setdefault(change, []).append(number)
    return found


def _numbers(changes: Sequence[Change]) -> list[int]:
    """The parameters' numbers in the order of torch's groups, which is the order of a state dict."""
    return [number for numbers in _members(changes).values() for number in numbers]


def _torch_group(parameters: list[torch.nn.Parameter], change: Change, numbers: Sequence[int]) -> dict[str, Any]:
    """One of torch's groups. Its learning rate is multiplied when the optimizer has filled in its own default."""
    own = {} if change.weight_decay is None else {"weight_decay": change.weight_decay}
    return {"params": [parameters[number] for number in numbers], **own}


def changes(genome: Genome, policy: Policy) -> tuple[Change, ...]:
    """What the groups of a policy change for each parameter of a network; nothing if it has no groups."""
    return resolved(policy.groups, genome.template, genome.names) if policy.groups else ()
