"""The range test of one optimizer as a job: short trials from one network on the same few batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from math import nan
from typing import Any

import torch

from esgd.engines.contract import JobResult, Kernel, NetworkState
from esgd.engines.fitness import REFUSALS
from esgd.engines.network import Network
from esgd.engines.sgd import SequentialTrajectory, no_batches, repeats
from esgd.engines.without_compiler import without_compiler
from esgd.ledger import Ledger
from esgd.policies import Policy
from esgd.protocols import Batch, Settings, Step, Task
from esgd.randomness import Seeds, global_randomness
from esgd.ranges import PROBE, FoundRange, search

LOOKED_AT, MOST_BATCHES = 128, 4
"""The loss is taken on so many training samples or more, unless so many batches have fewer."""

_UNUSED: Any = None
_STEP = Step(k=0, epochs=1, backoff=_UNUSED)  # a trial is never measured by its fitness, so it never backs off


@dataclass(frozen=True, eq=False, kw_only=True)
class RangeTest:
    """Find the learning rates of a policy for a network. A copy is trained, in its own memory, and dropped.

    `place` is that of the policy among all that are tested.
    """

    start: NetworkState
    policy: Policy
    place: int = 0

    @without_compiler()
    def run(self, kernel: Kernel) -> JobResult[FoundRange]:
        network = Network(kernel.setup, replace(kernel.computing, compile=False))
        trials = _Trials(network, self.start, self.policy, kernel.setup.seeds.at("ranges"))
        return JobResult([search(self.policy.optimizer, trials.loss_after(0.0, 0), trials.loss_after)], trials.work)

    def __str__(self) -> str:
        return f"the range test of {self.policy.optimizer}"


class _Trials:
    """Trials from one start. The batches are dealt out once: a source may be slow to begin."""

    def __init__(self, network: Network, start: NetworkState, policy: Policy, seeds: Seeds) -> None:
        self.network, self.start, self.policy, self.seeds = network, start, policy, seeds
        self.task, self.work = network.setup.task, Ledger()
        with self.work.clock("sgd"), global_randomness(seeds.integer("deal")):
            self.batches = list(islice(_dealt(self.task, seeds.at("data"), policy.settings), PROBE * policy.accumulate))
            self.looked_at = _enough(self.task, _dealt(self.task, seeds.at("look"), policy.settings))

    def loss_after(self, rate: float, steps: int) -> float:
        """The mean training loss after so many steps with this rate; NaN if it has diverged."""
        policy = replace(self.policy, hyper={**self.policy.hyper, "lr": rate})
        trajectory = SequentialTrajectory(
            self.network, self.start, policy, self.seeds.at("steps"), _STEP, score=_UNUSED
        )
        try:
            if steps:
                trajectory.try_out(self.batches[: steps * self.policy.accumulate])
            return self._look()
        except REFUSALS:
            self.network.check_layout()
            if not self.network.overflowed():
                raise
            return nan
        finally:
            self.work += trajectory.work

    @torch.no_grad()
    def _look(self) -> float:
        """In training mode and with the same dropout each time, so that losses differ by the rate alone."""
        losses = list[float]()
        with self.work.clock("sgd"), global_randomness(self.seeds.integer("dropout")):
            self.network.enter(training=True).reseed(self.seeds.at("own"))
            for batch in self.looked_at:
                losses.append(float(self.network.judge(self.task.loss, batch)))
                self.work.sgd_forward += self.task.size(batch) * repeats(self.task, self.policy.settings)
        return sum(losses) / len(losses)


def _dealt(task: Task, seeds: Seeds, settings: Settings) -> Iterator[Batch]:
    """The batches of one epoch after another."""
    for epoch in count():
        number = -1
        for number, batch in enumerate(task.batches(seeds.at(epoch), settings)):  # noqa: B007
            yield batch
        if number < 0:
            raise no_batches(epoch)


def _enough(task: Task, batches: Iterator[Batch]) -> Sequence[Batch]:
    taken, samples = list[Batch](), 0
    for batch in islice(batches, MOST_BATCHES):
        taken.append(batch)
        samples += task.size(batch)
        if samples >= LOOKED_AT:
            break
    return taken
