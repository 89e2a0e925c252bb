"""Gradients that torch's own optimizers do not take as they come: sparse ones, and those that come late."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from esgd.policies import Policy, optimizer_class


def takes_sparse(policy: Policy) -> bool:
    """Whether an optimizer takes the gradients of an embedding with sparse=True; few of torch's own do.

    >>> (
    ...     takes_sparse(Policy(optimizer="sgd", hyper={"lr": 0.1})),
    ...     takes_sparse(Policy(optimizer="adam", hyper={"lr": 0.1})),
    ... )
    (True, False)
    """
    decays = policy.hyper.get("weight_decay") or any(getattr(each, "weight_decay", None) for each in policy.groups)
    cls, alone = optimizer_class(policy.optimizer), not decays and policy.clip_norm is None
    if cls in (torch.optim.SGD, torch.optim.Adagrad):
        return alone
    return cls is torch.optim.SparseAdam or not cls.__module__.startswith("torch.optim")


def make_dense(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()


def begin_late_momentum(optimizer: torch.optim.Optimizer) -> bool:
    """Whether there were parameters without a velocity, which now have one.

    torch's fused SGD fails on a parameter that has no gradient in the first step and has one later. With the velocity
    that it is given here, its first step is the one that plain SGD takes: along the gradient itself.
    """
    late = False
    for group in optimizer.param_groups:
        for parameter in group["params"] if group.get("fused") and group.get("momentum") else ():
            if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                before = parameter.grad * (group["dampening"] / group["momentum"])
                optimizer.state[parameter]["momentum_buffer"] = before
                late = True
    return late
