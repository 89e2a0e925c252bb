"""Optimizers for many rows at once: the equations of `torch.optim`, with a hyper-parameter per row.

Tensors are stacks: one per parameter, of shape (n, *shape). A hyper-parameter is a column of n numbers. What no
equation here covers is done by `torch.optim` itself, row by row.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from esgd.engines.walk import build_optimizer, kind_of_state, packed
from esgd.policies import Policy, optimizer_class
from esgd.population import OptimizerState

Stacks = Sequence[Tensor]
Gradients = Sequence[Tensor | None]
"""None where the loss does not depend on a parameter: that one is left alone."""

_SGD = {"lr", "momentum", "dampening", "weight_decay", "nesterov"}
_ADAM = {"lr", "betas", "eps", "weight_decay"}


class Descent(Protocol):
    """The optimizers of some rows, in step."""

    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        """One update; `factors` are the schedules' factors on each learning rate."""
        ...

    def mark(self) -> Any:
        """The state of all rows (copies)."""
        ...

    def restore(self, mark: Any, where: Bool[Tensor, " n"]) -> None:
        """Go back to a mark, for the rows in `where`."""
        ...

    def baggage(self, mark: Any, row: int) -> OptimizerState:
        """The state of one row at a mark, as `torch.optim` would have it."""
        ...


def family(policy: Policy) -> type[StackedSGD | StackedAdam | Separate]:
    """Who can take this policy's steps."""
    cls, hyper = optimizer_class(policy.optimizer), set(policy.hyper)
    if cls is torch.optim.SGD and hyper <= _SGD:
        return StackedSGD
    if cls in (torch.optim.Adam, torch.optim.AdamW) and hyper <= _ADAM:
        return StackedAdam
    return Separate


class Column:
    """One number for each row, in a form that fits stacks of any dimension."""

    def __init__(self, values: Sequence[float] | Tensor, like: Tensor) -> None:
        self.values = torch.as_tensor(values, dtype=like.dtype, device=like.device)
        self.some = bool((self.values != 0).any())

    def over(self, stack: Tensor) -> Tensor:
        return self.values.view(-1, *[1] * (stack.dim() - 1))


class Rates:
    """Learning rates under their schedules: a new column only where a factor has changed."""

    def __init__(self, rates: Sequence[float], like: Tensor) -> None:
        self._rates, self._like = rates, like
        self._factors: Sequence[float] | None = None

    def at(self, factors: Sequence[float]) -> Column:
        if factors != self._factors:
            scaled = [rate * factor for rate, factor in zip(self._rates, factors, strict=True)]
            self._factors, self._column = factors, Column(scaled, self._like)
        return self._column


class StackedSGD:
    """`torch.optim.SGD` (momentum, dampening, Nesterov, weight decay) for n rows."""

    def __init__(self, stacks: Stacks, policies: Sequence[Policy], baggage: Sequence[OptimizerState | None]) -> None:
        self.stacks, self.policies = stacks, policies
        groups = [_defaults(policy) for policy in policies]
        like = stacks[0]
        momentum = [group["momentum"] for group in groups]
        self.momentum = Column(momentum, like)
        self.decay = Column([group["weight_decay"] for group in groups], like)
        # Without momentum torch ignores dampening.
        self.dampening = Column([group["dampening"] if group["momentum"] else 0.0 for group in groups], like)
        self.nesterov = Column([float(group["nesterov"]) for group in groups], like)
        self.kept = Column([1.0 - value for value in self.dampening.values.tolist()], like)
        self.mixed = self.nesterov.some and not bool(self.nesterov.values.all())
        self.rates = Rates([-group["lr"] for group in groups], like)
        self.velocity = [torch.zeros_like(stack) for stack in stacks]
        self.fresh = torch.ones(len(policies), dtype=torch.bool, device=like.device)
        self.stepped = list(range(len(stacks)))
        for row, carried in enumerate(_carried(policies, baggage)):
            for index, state in carried.items():
                self.velocity[index][row] = state["momentum_buffer"]
                self.fresh[row] = False

    @torch.no_grad()
    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        rate = self.rates.at(factors)
        if self.dampening.some:  # the first velocity is the gradient itself
            kept = Column(torch.where(self.fresh, 1.0, self.kept.values), self.stacks[0])
        for stack, velocity, gradient in zip(self.stacks, self.velocity, gradients, strict=True):
            if gradient is None:
                continue
            if self.decay.some:
                gradient = torch.addcmul(gradient, stack, self.decay.over(stack))
            if not self.momentum.some:
                stack.addcmul_(gradient, rate.over(stack))
                continue
            scaled = gradient * kept.over(stack) if self.dampening.some else gradient
            momentum = self.momentum.over(stack)
            torch.addcmul(scaled, velocity, momentum, out=velocity)
            direction = velocity
            if self.nesterov.some:
                ahead = torch.addcmul(gradient, velocity, momentum)
                direction = torch.where(self.nesterov.over(stack) > 0, ahead, velocity) if self.mixed else ahead
            stack.addcmul_(direction, rate.over(stack))
        self.fresh.fill_(value=False)
        self.stepped = _used(gradients)

    def mark(self) -> tuple[list[Tensor], Tensor]:
        return [velocity.clone() for velocity in self.velocity], self.fresh.clone()

    def restore(self, mark: tuple[list[Tensor], Tensor], where: Bool[Tensor, " n"]) -> None:
        for velocity, marked in zip([*self.velocity, self.fresh], [*mark[0], mark[1]], strict=True):
            velocity[where] = marked[where]

    def baggage(self, mark: tuple[list[Tensor], Tensor], row: int) -> OptimizerState:
        policy, (velocities, fresh) = self.policies[row], mark
        has_state = bool(policy.hyper.get("momentum")) and not fresh[row]
        tensors = {f"{i}/momentum_buffer": velocities[i][row].cpu().clone() for i in self.stepped} if has_state else {}
        return OptimizerState(kind_of_state(policy), tensors)


class StackedAdam:
    """`torch.optim.Adam` and `AdamW` for n rows."""

    def __init__(self, stacks: Stacks, policies: Sequence[Policy], baggage: Sequence[OptimizerState | None]) -> None:
        self.stacks, self.policies = stacks, policies
        groups = [_defaults(policy) for policy in policies]
        like = stacks[0]
        decoupled = [optimizer_class(policy.optimizer) is torch.optim.AdamW for policy in policies]
        self.rates = torch.tensor([group["lr"] for group in groups], dtype=torch.float64)
        self.betas = torch.tensor([group["betas"] for group in groups], dtype=torch.float64)
        decay = [group["weight_decay"] for group in groups]
        self.decoupled = torch.tensor(
            [value if is_w else 0.0 for value, is_w in zip(decay, decoupled, strict=True)], dtype=torch.float64
        )
        self.decay = Column([0.0 if is_w else value for value, is_w in zip(decay, decoupled, strict=True)], like)
        self.eps = Column([group["eps"] for group in groups], like)
        self.weights = [Column(1.0 - self.betas[:, i], like) for i in (0, 1)]
        self.taken = torch.zeros(len(policies), dtype=torch.float64)
        self.stepped = list(range(len(stacks)))
        self.mean = [torch.zeros_like(stack) for stack in stacks]
        self.square = [torch.zeros_like(stack) for stack in stacks]
        for row, carried in enumerate(_carried(policies, baggage)):
            for index, state in carried.items():
                self.mean[index][row], self.square[index][row] = state["exp_avg"], state["exp_avg_sq"]
                self.taken[row] = float(state["step"])

    @torch.no_grad()
    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        self.taken += 1
        rates = self.rates * torch.tensor(factors, dtype=torch.float64)
        first, second = (1.0 - self.betas ** self.taken[:, None]).unbind(dim=1)
        size, root = (Column(values, self.stacks[0]) for values in (-rates / first, second.rsqrt()))
        shrink = Column(1.0 - rates * self.decoupled, self.stacks[0]) if self.decoupled.any() else None
        for stack, mean, square, gradient in zip(self.stacks, self.mean, self.square, gradients, strict=True):
            if gradient is None:
                continue
            if self.decay.some:
                gradient = torch.addcmul(gradient, stack, self.decay.over(stack))
            if shrink is not None:
                stack.mul_(shrink.over(stack))
            mean.lerp_(gradient, self.weights[0].over(stack))
            square.lerp_(gradient * gradient, self.weights[1].over(stack))
            scale = square.sqrt().mul_(root.over(stack)).add_(self.eps.over(stack))
            stack.addcmul_(torch.div(mean, scale, out=scale), size.over(stack))
        self.stepped = _used(gradients)

    def mark(self) -> tuple[list[Tensor], list[Tensor], Tensor]:
        return [mean.clone() for mean in self.mean], [square.clone() for square in self.square], self.taken.clone()

    def restore(self, mark: tuple[list[Tensor], list[Tensor], Tensor], where: Bool[Tensor, " n"]) -> None:
        self.taken[where.cpu()] = mark[2][where.cpu()]
        for stack, marked in zip([*self.mean, *self.square], [*mark[0], *mark[1]], strict=True):
            stack[where] = marked[where]

    def baggage(self, mark: tuple[list[Tensor], list[Tensor], Tensor], row: int) -> OptimizerState:
        policy, (means, squares, taken) = self.policies[row], mark
        tensors = dict[str, Tensor]()
        if taken[row]:
            for index in self.stepped:
                tensors[f"{index}/step"] = taken[row].float()
                tensors[f"{index}/exp_avg"] = means[index][row].cpu().clone()
                tensors[f"{index}/exp_avg_sq"] = squares[index][row].cpu().clone()
        return OptimizerState(kind_of_state(policy), tensors)


class Separate:
    """Any other optimizer: `torch.optim`'s own, one for each row, on views of the stacks."""

    def __init__(self, stacks: Stacks, policies: Sequence[Policy], baggage: Sequence[OptimizerState | None]) -> None:
        self.policies = policies
        self.rows = [[nn.Parameter(stack[row]) for stack in stacks] for row in range(len(policies))]
        self.optimizers = [
            build_optimizer(row, policy, carried)
            for row, policy, carried in zip(self.rows, policies, baggage, strict=True)
        ]
        self.rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]

    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        for number, (optimizer, parameters) in enumerate(zip(self.optimizers, self.rows, strict=True)):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = None if gradient is None else gradient[number].contiguous()
            for group, rate in zip(optimizer.param_groups, self.rates[number], strict=True):
                group["lr"] = rate * factors[number]
            optimizer.step()

    def mark(self) -> list[dict[str, Any]]:
        return [copy.deepcopy(optimizer.state_dict()) for optimizer in self.optimizers]

    def restore(self, mark: list[dict[str, Any]], where: Bool[Tensor, " n"]) -> None:
        for row in where.nonzero().flatten().tolist():
            self.optimizers[row].load_state_dict(copy.deepcopy(mark[row]))

    def baggage(self, mark: list[dict[str, Any]], row: int) -> OptimizerState:
        return packed(self.policies[row], mark[row])


def _used(gradients: Gradients) -> list[int]:
    return [index for index, gradient in enumerate(gradients) if gradient is not None]


def _defaults(policy: Policy) -> dict[str, Any]:
    """Every hyper-parameter of a policy, those that torch fills in too; what torch refuses is refused."""
    (group,) = build_optimizer([nn.Parameter(torch.zeros(1))], policy).param_groups
    return group


def _carried(
    policies: Sequence[Policy], baggage: Sequence[OptimizerState | None]
) -> list[Mapping[int, dict[str, Tensor]]]:
    """For each row the state it brings along, by parameter; nothing if it is of another kind."""
    found = list[Mapping[int, dict[str, Tensor]]]()
    for policy, carried in zip(policies, baggage, strict=True):
        states = dict[int, dict[str, Tensor]]()
        if carried is not None and carried.kind == kind_of_state(policy):
            for key, tensor in carried.tensors.items():
                index, _, name = key.partition("/")
                states.setdefault(int(index), {})[name] = tensor
        found.append(states)
    return found
