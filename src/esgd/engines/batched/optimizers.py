"""Optimizers for many rows at once: the equations of `torch.optim`, with a hyper-parameter per row.

Tensors are stacks: one per parameter, of shape (n, *shape). A hyper-parameter is a column of n numbers. What no
equation here covers is done by `torch.optim` itself, row by row.

The equations are functions of tensors and of nothing else, so that a step can be recorded, or compiled, together with
the gradient it uses (`BatchedNetwork.step`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from esgd.engines.batched.columns import (
    Changes,
    Columns,
    Rates,
    as_column,
    changed,
    columns_for,
    columns_of,
    in_double,
    over,
)
from esgd.engines.optimizers import build_optimizer, kept_state, state_kind
from esgd.policies import Policy, optimizer_class
from esgd.population import OptimizerState

Stacks = Sequence[Tensor]
Gradients = Sequence[Tensor | None]
"""None where the loss does not depend on a parameter: that one is left alone."""

State = Mapping[str, Stacks]
"""What an optimizer remembers, by name: a stack for each parameter."""

_SGD = {"lr", "momentum", "dampening", "weight_decay", "nesterov"}
_ADAM = {"lr", "betas", "eps", "weight_decay"}


class RowOptimizers(Protocol):
    """The optimizers of some rows, in step."""

    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        """One update; `factors` are the schedules' factors on each learning rate."""
        ...

    def snapshot(self) -> Any:
        """The state of all rows (copies)."""
        ...

    def restore(self, snapshot: Any, where: Bool[Tensor, " n"]) -> None:
        """Go back to a snapshot, for the rows in `where`."""
        ...

    def kept_state(self, snapshot: Any, row: int) -> OptimizerState:
        """The state of one row at a snapshot, as `torch.optim` would have it."""
        ...


class BatchedEquations(RowOptimizers, Protocol):
    """Optimizers with equations for all rows at once."""

    @property
    def stacks(self) -> Stacks: ...

    @property
    def state(self) -> State: ...

    def begin(self, factors: Sequence[float], used: Sequence[int]) -> Columns:
        """Count a step in which the parameters `used` have gradients, and return the columns of its equations."""
        ...

    @staticmethod
    def update(stacks: Stacks, state: State, gradients: Gradients, columns: Columns) -> None:
        """The equations: stacks and state change in place."""
        ...


def optimizer_family(policy: Policy) -> type[StackedSGD | StackedAdam | SeparateOptimizers]:
    """Which class takes this policy's steps."""
    cls, hyper = optimizer_class(policy.optimizer), set(policy.hyper)
    if cls is torch.optim.SGD and hyper <= _SGD:
        return StackedSGD
    if cls in (torch.optim.Adam, torch.optim.AdamW) and hyper <= _ADAM:
        return StackedAdam
    return SeparateOptimizers


class StackedSGD:
    """`torch.optim.SGD` (momentum, dampening, Nesterov, weight decay) for n rows."""

    def __init__(
        self,
        stacks: Stacks,
        policies: Sequence[Policy],
        carried: Sequence[OptimizerState | None],
        changes: Changes = (),
    ) -> None:
        self.stacks, self.policies = stacks, policies
        groups, like = [_defaults(policy) for policy in policies], stacks[0]
        # Without momentum torch ignores dampening.
        self._kept = as_column([1.0 - (group["dampening"] if group["momentum"] else 0.0) for group in groups], like)
        self._dampened = bool((self._kept != 1).any())
        rates, decay = changed([group["lr"] for group in groups], [group["weight_decay"] for group in groups], changes)
        self._columns = columns_of(
            like,
            momentum=in_double([group["momentum"] for group in groups]),
            decay=decay,
            nesterov=in_double([group["nesterov"] for group in groups]),
        )
        self._rates = Rates(-rates, like)
        self.state: State = {"velocity": [torch.zeros_like(stack) for stack in stacks]}
        self.fresh = torch.ones(len(policies), dtype=torch.bool, device=like.device)
        self.used: Sequence[int] = range(len(stacks))
        for row, states in enumerate(_carried(policies, carried)):
            for index, state in states.items():
                self.state["velocity"][index][row] = state["momentum_buffer"]
                self.fresh[row] = False

    def begin(self, factors: Sequence[float], used: Sequence[int]) -> Columns:
        columns = {"rate": self._rates.at(factors), **self._columns}
        if self._dampened:  # the first velocity is the gradient itself
            columns["kept"] = torch.where(self.fresh, 1.0, self._kept)
        self.fresh.fill_(value=False)
        self.used = used
        return columns

    @staticmethod
    def update(stacks: Stacks, state: State, gradients: Gradients, columns: Columns) -> None:
        for number, (stack, velocity, gradient) in enumerate(zip(stacks, state["velocity"], gradients, strict=True)):
            if gradient is None:
                continue
            column = columns_for(columns, number, stack)
            if "decay" in column:
                gradient = torch.addcmul(gradient, stack, column["decay"])
            if "momentum" not in column:
                stack.addcmul_(gradient, column["rate"])
                continue
            scaled = gradient * column["kept"] if "kept" in column else gradient
            torch.addcmul(scaled, velocity, column["momentum"], out=velocity)
            direction = velocity
            if "nesterov" in column:
                ahead = torch.addcmul(gradient, velocity, column["momentum"])
                direction = torch.where(column["nesterov"] > 0, ahead, velocity)
            stack.addcmul_(direction, column["rate"])

    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        _step(self, gradients, factors)

    def snapshot(self) -> tuple[State, Tensor]:
        return _copies(self.state), self.fresh.clone()

    def restore(self, snapshot: tuple[State, Tensor], where: Bool[Tensor, " n"]) -> None:
        _put_back(self.state, snapshot[0], where)
        torch.where(where, snapshot[1], self.fresh, out=self.fresh)

    def kept_state(self, snapshot: tuple[State, Tensor], row: int) -> OptimizerState:
        policy, (state, fresh) = self.policies[row], snapshot
        has_state = bool(policy.hyper.get("momentum")) and not fresh[row]
        velocity = state["velocity"]
        tensors = {f"{i}/momentum_buffer": velocity[i][row].cpu().clone() for i in self.used} if has_state else {}
        return OptimizerState(state_kind(policy), tensors)


class StackedAdam:
    """`torch.optim.Adam` and `AdamW` for n rows."""

    def __init__(
        self,
        stacks: Stacks,
        policies: Sequence[Policy],
        carried: Sequence[OptimizerState | None],
        changes: Changes = (),
    ) -> None:
        self.stacks, self.policies = stacks, policies
        groups, like = [_defaults(policy) for policy in policies], stacks[0]
        decoupled = torch.tensor([optimizer_class(policy.optimizer) is torch.optim.AdamW for policy in policies])
        rates, decay = changed([group["lr"] for group in groups], [group["weight_decay"] for group in groups], changes)
        self._rates = rates
        self._betas = torch.tensor([group["betas"] for group in groups], dtype=torch.float64)
        self._decoupled = torch.where(decoupled, decay, 0.0)
        self._columns = columns_of(like, decay=torch.where(decoupled, 0.0, decay))
        self._columns["eps"] = as_column([group["eps"] for group in groups], like)
        self._columns["first"], self._columns["second"] = (as_column(1.0 - self._betas[:, i], like) for i in (0, 1))
        self.taken = torch.zeros(len(policies), dtype=torch.float64)
        self.used: Sequence[int] = range(len(stacks))
        self.state: State = {name: [torch.zeros_like(stack) for stack in stacks] for name in ("mean", "square")}
        for row, states in enumerate(_carried(policies, carried)):
            for index, state in states.items():
                self.state["mean"][index][row] = state["exp_avg"]
                self.state["square"][index][row] = state["exp_avg_sq"]
                self.taken[row] = float(state["step"])

    def begin(self, factors: Sequence[float], used: Sequence[int]) -> Columns:
        self.taken += 1
        self.used, like = used, self.stacks[0]
        rates = self._rates * torch.tensor(factors, dtype=torch.float64)
        first, second = (1.0 - self._betas ** self.taken[:, None]).unbind(dim=1)
        columns = {"size": as_column(-rates / first, like), "root": as_column(second.rsqrt(), like), **self._columns}
        if self._decoupled.any():
            columns["shrink"] = as_column(1.0 - rates * self._decoupled, like)
        return columns

    @staticmethod
    def update(stacks: Stacks, state: State, gradients: Gradients, columns: Columns) -> None:
        parts = zip(stacks, state["mean"], state["square"], gradients, strict=True)
        for number, (stack, mean, square, gradient) in enumerate(parts):
            if gradient is None:
                continue
            column = columns_for(columns, number, stack)
            if "decay" in column:
                gradient = torch.addcmul(gradient, stack, column["decay"])
            if "shrink" in column:
                stack.mul_(column["shrink"])
            mean.lerp_(gradient, column["first"])
            square.lerp_(gradient * gradient, column["second"])
            scale = square.sqrt().mul_(column["root"]).add_(column["eps"])
            stack.addcmul_(mean / scale, column["size"])

    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        _step(self, gradients, factors)

    def snapshot(self) -> tuple[State, Tensor]:
        return _copies(self.state), self.taken.clone()

    def restore(self, snapshot: tuple[State, Tensor], where: Bool[Tensor, " n"]) -> None:
        _put_back(self.state, snapshot[0], where)
        self.taken[where.cpu()] = snapshot[1][where.cpu()]

    def kept_state(self, snapshot: tuple[State, Tensor], row: int) -> OptimizerState:
        policy, (state, taken) = self.policies[row], snapshot
        tensors = dict[str, Tensor]()
        if taken[row]:
            for index in self.used:
                tensors[f"{index}/step"] = taken[row].float()
                tensors[f"{index}/exp_avg"] = state["mean"][index][row].cpu().clone()
                tensors[f"{index}/exp_avg_sq"] = state["square"][index][row].cpu().clone()
        return OptimizerState(state_kind(policy), tensors)


class SeparateOptimizers:
    """Any other optimizer: `torch.optim`'s own, one for each row, on views of the stacks."""

    def __init__(
        self,
        stacks: Stacks,
        policies: Sequence[Policy],
        carried: Sequence[OptimizerState | None],
        changes: Changes = (),
    ) -> None:
        self.policies, self._changes = policies, changes or [()] * len(policies)
        self.rows = [[nn.Parameter(stack[row]) for stack in stacks] for row in range(len(policies))]
        self.optimizers = [
            build_optimizer(row, policy, state, changes=own)
            for row, policy, state, own in zip(self.rows, policies, carried, self._changes, strict=True)
        ]
        self.rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]

    def step(self, gradients: Gradients, factors: Sequence[float]) -> None:
        for number, (optimizer, parameters) in enumerate(zip(self.optimizers, self.rows, strict=True)):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = None if gradient is None else gradient[number].contiguous()
            for group, rate in zip(optimizer.param_groups, self.rates[number], strict=True):
                group["lr"] = rate * factors[number]
            optimizer.step()

    def snapshot(self) -> list[dict[str, Any]]:
        return [copy.deepcopy(optimizer.state_dict()) for optimizer in self.optimizers]

    def restore(self, snapshot: list[dict[str, Any]], where: Bool[Tensor, " n"]) -> None:
        for row in where.nonzero().flatten().tolist():
            self.optimizers[row].load_state_dict(copy.deepcopy(snapshot[row]))

    def kept_state(self, snapshot: list[dict[str, Any]], row: int) -> OptimizerState:
        return kept_state(self.policies[row], snapshot[row], self._changes[row])


def clipped(gradients: Gradients, limits: Tensor) -> list[Tensor | None]:
    """As `clip_grad_norm_`, with a limit for each row."""
    norms = torch.stack([g.reshape(len(g), -1).norm(dim=1) for g in gradients if g is not None]).norm(dim=0)
    scale = (limits / (norms + 1e-6)).clamp(max=1.0)
    return [None if g is None else g * over(scale, g) for g in gradients]


@torch.no_grad()
def _step(equations: BatchedEquations, gradients: Gradients, factors: Sequence[float]) -> None:
    used = [index for index, gradient in enumerate(gradients) if gradient is not None]
    equations.update(equations.stacks, equations.state, gradients, equations.begin(factors, used))


def _copies(state: State) -> State:
    return {name: [stack.clone() for stack in stacks] for name, stacks in state.items()}


def _put_back(state: State, marked: State, where: Bool[Tensor, " n"]) -> None:
    for name, stacks in state.items():
        for stack, before in zip(stacks, marked[name], strict=True):
            torch.where(over(where, stack), before, stack, out=stack)  # an index of bools would make the host wait


def _defaults(policy: Policy) -> dict[str, Any]:
    """Every hyper-parameter of a policy, those that torch fills in too; what torch refuses is refused."""
    (group,) = build_optimizer([nn.Parameter(torch.zeros(1))], policy).param_groups
    return group


def _carried(
    policies: Sequence[Policy], carried: Sequence[OptimizerState | None]
) -> list[Mapping[int, dict[str, Tensor]]]:
    """For each row the state it brings along, by parameter; nothing if it is of another kind."""
    found = list[Mapping[int, dict[str, Tensor]]]()
    for policy, state in zip(policies, carried, strict=True):
        states = dict[int, dict[str, Tensor]]()
        if state is not None and state.kind == state_kind(policy):
            for key, tensor in state.of_optimizer.items():
                index, _, name = key.partition("/")
                states.setdefault(int(index), {})[name] = tensor
        found.append(states)
    return found
