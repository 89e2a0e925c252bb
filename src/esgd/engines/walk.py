"""One individual's SGD step in ordinary mutable PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd.engines.seat import Score, Seat
from esgd.engines.stint import Account, End, Stint
from esgd.errors import RecipeError, TaskError, shown
from esgd.genome import Buffers, Row
from esgd.ledger import Work
from esgd.policies import Policy, optimizer_class
from esgd.population import OptimizerState
from esgd.protocols import Batch, Repeats, Step
from esgd.randomness import Seeds, global_randomness
from esgd.schedules import Moment

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)


@dataclass(frozen=True, eq=False)
class Mark:
    """A place on the walk, complete: going back to it and on gives what going on from it would have given."""

    row: Row
    buffers: dict[str, Tensor]
    optimizer: dict[str, Any]
    fitness: float
    moved: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Start:
    """Where an individual sets out from, and what it trains with."""

    row: Row
    buffers: Buffers
    fitness: float
    baggage: OptimizerState | None
    policy: Policy
    seeds: Seeds


class SingleWalk:
    """The walk of one individual (n = 1) on a seat; `score` takes the fitness of whoever sits there."""

    def __init__(self, seat: Seat, start: Start, step: Step, score: Callable[[], Score] | None = None) -> None:
        self.seat, self.policy, self.step, self.seeds = seat, start.policy, step, start.seeds
        self._take_score = score or seat.score
        self.work = Work()
        self.moved = self.diverged = False
        self.end: Mark | None = None
        self._score = start.fitness
        self._epoch, self._placed = 0, False
        task, policy = seat.rules.task, start.policy
        seat.put(start.row, start.buffers)
        task.prepare(seat.module, policy.settings)
        self.optimizer = build_optimizer(seat.parameters, policy, start.baggage, fused=not seat.sparse)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self._steps = task.steps(policy.settings)
        self._repeats = task.repeats(policy.settings) if isinstance(task, Repeats) else 1

    @property
    def fitness(self) -> Float[Tensor, " n"]:
        return torch.tensor([self._score], dtype=torch.float64)

    @property
    def rows(self) -> Float[Tensor, "n d"]:
        return self.seat.row()[None]

    def epoch(self) -> None:
        """One epoch; global generators are lent this epoch's seed, so dropout is addressed too."""
        rules, s = self.seat.rules, self._epoch
        with self.work.clock("sgd"), global_randomness(self.seeds.integer("globals", s)):
            self.seat.module.train()
            batches = rules.task.batches(self.seeds.at("data", s), self.policy.settings)
            try:
                self._updates(batches, s)
            except (ArithmeticError, RuntimeError, ValueError):
                if not self.seat.exploded():  # a network or loss that refuses NaN is one way of diverging
                    raise
        self._epoch, self._score, self.moved, self._placed = s + 1, nan, True, False

    def _updates(self, batches: Iterable[Batch], s: int) -> None:
        number = -1
        for number, batch in enumerate(batches):
            self._update(self.seat.computing.to_device(batch), s + number / self._steps if self._steps else s)
        if number < 0:
            raise no_batches(s)

    def _update(self, batch: Batch, epoch: float) -> None:
        step, task = self.step, self.seat.rules.task
        samples = task.size(batch) * self._repeats
        moment = Moment(epoch=epoch, epochs=step.epochs, before=step.before, total=step.total)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self.policy.schedule(moment)

        def closure() -> Tensor:
            for parameter in self.seat.parameters:
                parameter.grad = None  # the next backward writes there, nothing has to be zeroed
            with self.seat.computing.autocast():
                loss = task.loss(self.seat.module, batch)
            checked_loss(loss)
            loss.backward()
            if self.policy.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.seat.parameters, self.policy.clip_norm)
            self.work.sgd_forward += samples
            self.work.sgd_backward += samples
            return loss.detach()

        self.optimizer.step(closure)  # type: ignore[arg-type]

    def measure(self) -> Float[Tensor, " n"]:
        with self.work.clock("fitness"):
            score = self._take_score()
        self.work.fitness_sgd += score.samples
        self.work.fitness_saved += score.saved
        self._score = score.fitness
        self.diverged |= score.fitness == torch.inf
        if self.step.keep_ends and not self._placed:
            self.end = self.mark()
        return self.fitness

    def mark(self) -> Mark:
        state = copy.deepcopy(self.optimizer.state_dict())
        return Mark(self.seat.row(), self.seat.buffers(), state, self._score, self.moved)

    def restore(self, mark: Mark, where: Bool[Tensor, " n"]) -> None:
        if where[0]:
            self.seat.rules.genome.write(mark.row, mark.buffers, self.seat.module)
            self.optimizer.load_state_dict(copy.deepcopy(mark.optimizer))
            self._score, self.moved = mark.fitness, mark.moved

    def place(self, rows: Float[Tensor, "n d"]) -> None:
        self.seat.rules.genome.write(rows[0], self.seat.buffers(), self.seat.module)
        self._score, self.moved, self._placed = nan, True, True

    def coin(self, number: int) -> Float[Tensor, " n"]:
        return torch.rand(1, generator=self.seeds("coin", number), dtype=torch.float64)

    def outcome(self, refused: Int[Tensor, " n"]) -> Stint:
        """What came of it."""
        keeps, end = self.seat.rules.baggage.keeps, self.end
        ends = list[End | None]([None])
        if end is not None and not self.moved and end.fitness < inf:
            ends = [End(end.row, end.buffers, end.fitness, packed(self.policy, end.optimizer) if keeps else None)]
        account = Account(
            fitness=self.fitness,
            moved=torch.tensor([self.moved]),
            refused=refused,
            diverged=torch.tensor([self.diverged]),
            baggage=[packed(self.policy, self.optimizer.state_dict()) if keeps else None],
            ends=ends,
            work=self.work,
        )
        return Stint(self.rows, {name: value[None] for name, value in self.seat.buffers().items()}, account)


def checked_loss(loss: Tensor) -> Tensor:
    """The loss, if SGD can use it."""
    if loss.dim() or not loss.requires_grad:
        raise TaskError(
            f"the training loss has shape {tuple(loss.shape)} and requires_grad={loss.requires_grad}. SGD needs a "
            f"scalar that depends on the network's parameters. Check that the loss uses the network's output."
        )
    return loss


def no_batches(s: int) -> TaskError:
    """What to say of an epoch that is empty."""
    return TaskError(
        f"the training data gave no batches in epoch {s + 1}. A function passed as train= must return a new iterable "
        f"each time it is called, not one that is used up."
    )


def packed(policy: Policy, state: Mapping[str, Any]) -> OptimizerState:
    """An optimizer's state dict as baggage."""
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
    return OptimizerState(kind_of_state(policy), tensors)


def kind_of_state(policy: Policy) -> str:
    """What state an optimizer keeps depends on its class and on what is switched on: momentum, amsgrad, centered, …"""
    switched_on = sorted(name for name, value in policy.hyper.items() if value and name not in ("lr", "nesterov"))
    return " ".join([policy.optimizer, *switched_on])


def build_optimizer(
    parameters: list[torch.nn.Parameter],
    policy: Policy,
    baggage: OptimizerState | None = None,
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
    if baggage is not None and baggage.kind == kind_of_state(policy):
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in baggage.tensors.items():
            index, _, name = key.partition("/")
            state.setdefault(int(index), {})[name] = tensor.clone()
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return optimizer
