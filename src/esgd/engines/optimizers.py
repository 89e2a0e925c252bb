"""torch's optimizers, built from policies, and their state as tensors that are kept between generations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from esgd.errors import RecipeError, shown
from esgd.policies import Policy, optimizer_class
from esgd.population import OptimizerState

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)


def kept_state(policy: Policy, state: Mapping[str, Any]) -> OptimizerState:
    """An optimizer's state dict as tensors by name."""
    tensors = {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{index}/{name}"] = value.detach().cpu().clone()
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
) -> torch.optim.Optimizer:
    """The policy's optimizer, with what was drawn and nothing else; carried state never brings old hyper-parameters."""
    cls = optimizer_class(policy.optimizer)
    may_fuse = fused and cls in FUSED and not {"foreach", "fused", "differentiable"} & set(policy.hyper)
    faster = {"fused": True} if may_fuse else {}
    try:
        optimizer = cls(parameters, **policy.hyper, **faster)  # type: ignore[arg-type]
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise RecipeError(
            f"{cls.__name__} refuses {shown(dict(policy.hyper))}: {error}. The species draws keyword arguments of that "
            f"class; correct its `hyper` ranges."
        ) from error
    if carried is not None and carried.kind == state_kind(policy):
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in carried.of_optimizer.items():
            index, _, name = key.partition("/")
            state.setdefault(int(index), {})[name] = tensor.clone()
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return optimizer
