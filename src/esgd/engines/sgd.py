"""One individual's SGD step in ordinary mutable PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from math import floor, inf, nan
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd._tensors.averages import IterateAverage
from esgd.engines.accumulation import batch_shares, batches_of_steps, optimizer_steps
from esgd.engines.contract import NetworkState, Outcome, Score, Stack
from esgd.engines.fitness import REFUSALS, samples_in
from esgd.engines.gradients import begin_late_momentum, make_dense, takes_sparse
from esgd.engines.network import Network
from esgd.engines.optimizers import build_optimizer, changes, kept_state
from esgd.engines.without_compiler import plain_step
from esgd.errors import TaskError
from esgd.genome import Row
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.population import OptimizerState
from esgd.protocols import Batch, Repeats, Settings, Step, Task, continues, returns
from esgd.randomness import Seeds, global_randomness, global_state, set_global_state
from esgd.schedules import Moment


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A point of the trajectory, complete: continuing from it gives what continuing from the point itself would."""

    row: Row
    buffers: dict[str, Tensor]
    optimizer: dict[str, Any]
    fitness: float
    moved: bool
    place: int = 0


@dataclass(eq=False)
class BegunEpoch:
    """An epoch that a trajectory has paused in: the batches of each step, how many steps were taken, and the global
    generators then."""

    batches: Iterator[tuple[Batch, ...]]
    number: int = 0
    state: Any = None


class SequentialTrajectory:
    """The trajectory of one individual (n = 1); `score` takes the fitness of what is loaded in the network, and, if it
    can, the fitness with its output times each of some numbers."""

    def __init__(
        self,
        network: Network,
        start: NetworkState,
        policy: Policy,
        seeds: Seeds,
        step: Step,
        *,
        score: Callable[[Sequence[float]], list[Score]],
    ) -> None:
        self.network, self.policy, self.seeds, self.step, self._take_scores = network, policy, seeds, step, score
        self.task, self.work = network.setup.task, Ledger()
        self.moved = self.diverged = False
        self.samples = 0
        self.end: Snapshot | None = None
        self._fitness = start.fitness
        self._epoch, self._placed, self._place, self._visited = 0, False, 0, 0
        self._continues = continues(network.setup.baggage)
        self._standing = start.optimizer_state.place if self._continues and start.optimizer_state else None
        self._brought = start.optimizer_state
        self._begun: BegunEpoch | None = None
        self._anchor = [] if step.anchor_row is None else network.on_device(step.anchor_row)
        network.load(start.row, start.buffers)
        network.prepare(policy.settings)
        self._changes = changes(network.setup.genome, policy)
        self.optimizer = build_optimizer(
            network.parameters, policy, start.optimizer_state, fused=not network.sparse, changes=self._changes
        )
        self._take_step = plain_step(self.optimizer)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self._steps = optimizer_steps(self.task, policy)
        self._taken = round(step.before * (self._steps or 0))
        self._repeats = repeats(self.task, policy.settings)
        self._densifies = network.sparse and not takes_sparse(policy)

    @property
    def fitness(self) -> Float[Tensor, " n"]:
        return torch.tensor([self._fitness], dtype=torch.float64)

    @property
    def scalable(self) -> bool:
        return bool(self.network.output_layer)

    @property
    def rows(self) -> Float[Tensor, "n d"]:
        return self.network.row()[None]

    def epoch(self) -> None:
        self._train_epoch(inf, ())

    def train(self, until: float, averages: Sequence[IterateAverage] = ()) -> None:
        """Global generators and the network's own are lent the seeds of each epoch, so dropout is addressed too."""
        for last in parts_until(until, self._epoch, self.step.before, self._steps):
            self._train_epoch(last, averages)

    def try_out(self, batches: Sequence[Batch]) -> None:
        """Train on these batches: a trial that begins and ends here."""
        with self.work.clock("sgd"), global_randomness(self.seeds.integer("globals", 0)):
            self.network.enter(training=True).reseed(self.seeds.at("own", 0))
            self._train_batches(BegunEpoch(batches_of_steps(batches, self.policy.accumulate)), inf, ())

    def _train_epoch(self, last: float, averages: Sequence[IterateAverage]) -> None:
        """Steps up to number `last`, or to the end of the epoch."""
        s, begun = self._epoch, self._begun
        if self._standing is not None:
            self.network.setup.genome.write(*self._standing, self.network.module)
        self._begun = self._standing = None
        with self.work.clock("sgd"), global_randomness(self.seeds.integer("globals", s)):
            self.network.enter(training=True).reseed(self.seeds.at("own", s, *([begun.number] if begun else [])))
            if begun is None:
                batches = self.task.batches(self.seeds.at("data", s), self.policy.settings)
                begun = BegunEpoch(batches_of_steps(batches, self.policy.accumulate))
            else:
                set_global_state(begun.state)
            try:
                begun.number = self._train_batches(begun, last, averages)
            except REFUSALS:
                self.network.check_layout()
                if not self.network.overflowed():
                    raise
                last = inf  # it has diverged: there is no use in the rest of the epoch
            if s == 0:
                self.network.check_layout()
            if begun.number < last:
                self._epoch = s + 1
            else:
                begun.state, self._begun = global_state(), begun
        self._move_on(placed=False)

    def _train_batches(self, begun: BegunEpoch, last: float, averages: Sequence[IterateAverage]) -> int:
        """Returns the number of the next step."""
        number, steps = begun.number, self._steps or inf
        for batches in islice(begun.batches, None if last == inf else int(last) - number):
            self._update(batches, self._epoch + number / steps)
            number += 1
            self._pull()
            for average in averages:
                average.take(self.network.parameters, epochs=1 / steps)
        if number == 0:
            raise no_batches(self._epoch)
        return number

    @torch.no_grad()
    def _pull(self) -> None:
        """Towards the anchor, if this step, counted over the whole run, is one of those."""
        anchor = self.step.anchor
        self._taken += 1
        if anchor is None or not self._anchor or self._taken % anchor.every:
            return
        for parameter, there in zip(self.network.parameters, self._anchor, strict=True):
            parameter.lerp_(there, anchor.strength)

    def _update(self, batches: Sequence[Batch], epoch: float) -> None:
        step, network = self.step, self.network
        moment = Moment(epoch=epoch, epochs=step.epochs, before=step.before, total=step.total)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self.policy.schedule(moment)
        shares, computed = batch_shares(self.task, batches), False

        def closure() -> Tensor:
            nonlocal computed
            computed = False
            for parameter in network.parameters:
                parameter.grad = None  # the next backward writes there, nothing has to be zeroed
            losses = [self._backward(batch, share) for batch, share in zip(batches, shares, strict=True)]
            if self._densifies:
                make_dense(network.parameters)
            if self.policy.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters, self.policy.clip_norm)
            loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
            computed = True
            return loss

        try:
            self._take_step(closure)
        except TypeError:
            if not (computed and begin_late_momentum(self.optimizer)):  # an error of the loss is the user's
                raise
            self._take_step(None)

    def _backward(self, batch: Batch, share: float) -> Tensor:
        """Add a batch's share to the gradients of a step; returns its share of the loss."""
        samples = self.task.size(batch) * self._repeats
        loss = checked_loss(self.network.judge(self.task.loss, batch))
        loss = loss if share == 1 else loss * share
        loss.backward()
        self.work.sgd_forward += samples
        self.work.sgd_backward += samples
        return loss.detach()

    def measure(self) -> Float[Tensor, " n"]:
        self._measure(())
        return self.fitness

    def measure_scaled(self, scales: Sequence[float]) -> Float[Tensor, "s n"]:
        found = self._measure(scales) or [inf] * len(scales)
        return torch.tensor(found, dtype=torch.float64)[:, None]

    def _measure(self, scales: Sequence[float]) -> list[float]:
        """Take the fitness; returns what it is for each scale, or nothing if the output cannot be multiplied."""
        with self.work.clock("fitness"):
            score, *scaled = self._take_scores(scales)
        self.work.fitness_sgd += score.samples
        self.work.fitness_saved += score.saved
        self._fitness, self.samples = score.fitness, samples_in(score.parts)
        self.diverged |= score.fitness == inf
        if (self.step.keep_ends or self._continues) and not self._placed:
            self.end = self.snapshot()
        return [each.fitness for each in scaled]

    @torch.no_grad()
    def scale(self, factors: Float[Tensor, " n"]) -> None:
        factor, self._placed = float(factors[0]), True
        if factor != 1.0:
            for place in self.network.output_layer:
                self.network.parameters[place].mul_(factor)
            self._move_on(placed=True)

    def snapshot(self) -> Snapshot:
        state = copy.deepcopy(self.optimizer.state_dict())
        return Snapshot(self.network.row(), self.network.buffers(), state, self._fitness, self.moved, self._place)

    def restore(self, snapshot: Snapshot, where: Bool[Tensor, " n"]) -> None:
        if where[0]:
            self.network.setup.genome.write(snapshot.row, snapshot.buffers, self.network.module)
            self.optimizer.load_state_dict(copy.deepcopy(snapshot.optimizer))
            self._fitness, self.moved, self._place = snapshot.fitness, snapshot.moved, snapshot.place

    def place(self, rows: Float[Tensor, "n d"]) -> None:
        self.network.setup.genome.write(rows[0], self.network.buffers(), self.network.module)
        self._move_on(placed=True)

    @torch.no_grad()
    def place_average(self, average: IterateAverage) -> None:
        for parameter, mean in zip(self.network.parameters, average.tensors, strict=True):
            parameter.copy_(mean)
        self._move_on(placed=True)

    def _move_on(self, *, placed: bool) -> None:
        """It is at another place, where SGD has led it or where it was `placed`."""
        self._visited += 1
        self._fitness, self.moved, self._placed, self._place = nan, True, placed, self._visited

    def coin(self, number: int) -> Float[Tensor, " n"]:
        return torch.rand(1, generator=self.seeds("coin", number), dtype=torch.float64)

    def outcome(self, refused: Int[Tensor, " n"]) -> tuple[Stack, list[Outcome], Ledger]:
        """Where it ended, and what happened on the way."""
        end, reached = None, self.end if self.end is not None and self.end.fitness < inf else None
        if reached is not None and (not self.moved or (self.step.keep_every_end and self._place != reached.place)):
            kept = self._kept(reached.optimizer)
            end = NetworkState(reached.row, reached.buffers, reached.fitness, kept) if self.step.keep_ends else None
        outcome = Outcome(
            fitness=self._fitness,
            moved=self.moved,
            refused=int(refused[0]),
            diverged=self.diverged,
            optimizer_state=self._continued(reached) if self._continues else self._kept(self.optimizer.state_dict()),
            end=end,
        )
        buffers = {name: value[None] for name, value in self.network.buffers().items()}
        return Stack(self.rows, buffers), [outcome], self.work

    def _continued(self, reached: Snapshot | None) -> OptimizerState | None:
        """Where the next SGD step continues: at the end of this one, unless that has diverged or led nowhere."""
        if self.end is None:
            return self._brought  # nothing was trained
        if reached is None or (returns(self.network.setup.baggage) and not self.moved):
            return None
        kept = kept_state(self.policy, reached.optimizer, self._changes)
        return kept if self._place == reached.place else kept.at(reached.row, reached.buffers)

    def _kept(self, state: dict[str, Any]) -> OptimizerState | None:
        return kept_state(self.policy, state, self._changes) if self.network.setup.baggage.keeps else None


def parts_until(until: float, epoch: int, before: float, steps: int | None) -> Iterator[float]:
    """How an SGD step that is in this epoch gets to `until`: for each epoch, the step to stop at; inf for its end."""
    whole, rest = whole_and_rest(until, before, steps)
    yield from repeat(inf, whole - epoch)
    if rest:
        yield rest


def whole_and_rest(epochs: float, before: float, steps: int | None) -> tuple[int, int]:
    """So many epochs of an SGD step as whole ones, and steps of the next one; at least one step, unless it is none.

    What is rounded in one generation is made up for in the next: `before` are the epochs of the earlier ones.

    >>> whole_and_rest(2, 0, None), whole_and_rest(1.5, 0, 22), [whole_and_rest(0.3, 0.3 * k, 5) for k in range(4)]
    ((2, 0), (1, 11), [(0, 2), (0, 1), (0, 1), (0, 2)])
    """
    if epochs == 0 or (epochs == floor(epochs) and before == floor(before)):
        return floor(epochs), 0
    if steps is None:
        raise TaskError(
            f"{epochs:.3g} epochs cannot be trained: this task does not know how many batches an epoch has. Use "
            f"whole numbers for sgd_epochs and no looks in between, or data of a known length: tensors or a Dataset."
        )
    return divmod(max(1, round((before + epochs) * steps) - round(before * steps)), steps)


def repeats(task: Task, settings: Settings) -> int:
    """How often a step takes every sample through the network; the ledger counts it."""
    return task.repeats(settings) if isinstance(task, Repeats) else 1


def checked_loss(loss: Tensor) -> Tensor:
    """The loss, if SGD can use it."""
    if loss.dim() or not loss.requires_grad or loss.is_complex():
        raise TaskError(
            f"the training loss is {loss.dtype} of shape {tuple(loss.shape)}, with requires_grad={loss.requires_grad}. "
            f"SGD needs a real scalar that depends on the network's parameters. Check that the loss uses the network's "
            f"output; of a complex one take .abs() or .real."
        )
    return loss


def no_batches(s: int) -> TaskError:
    """What to say of an epoch that is empty."""
    return TaskError(
        f"the training data gave no batches in epoch {s + 1}. A function passed as train= must return a new iterable "
        f"each time it is called, not one that is used up."
    )
