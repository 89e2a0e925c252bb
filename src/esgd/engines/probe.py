"""Timing an engine on a few real steps of a task."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from typing import Any

from esgd.policies import Policy
from esgd.population import Population
from esgd.protocols import Batch, DealsTogether, Engine, Rules, Settings, Step, Task, Walk
from esgd.randomness import Seeds

PROBED = Policy(optimizer="sgd", hyper={"lr": 1e-3, "momentum": 0.9})


WARM, LASTING, MOST = 3, 0.25, 50
"""A stint is timed so often, because in the first ones something is still started, recorded or compiled: in a pool by
one worker after the other. Then it should last so many seconds, for which it may have so many times more steps."""


class Glimpse:
    """A task of which only the first few batches are seen; everything else is the task's own."""

    def __init__(self, task: Task, batches: int) -> None:
        self._task, self._batches = task, batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Glimpse, (self._task, self._batches)

    def batches(self, seeds: Seeds, settings: Settings) -> Iterable[Batch]:
        return islice(self._task.batches(seeds, settings), self._batches)

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterable[Batch] | None:
        dealt = self._task.batches_together(seeds, settings) if isinstance(self._task, DealsTogether) else None
        return None if dealt is None else islice(dealt, self._batches)


@dataclass(frozen=True)
class _NoFitness:
    """Epochs and nothing else: a back-off that never looks."""

    certain = False

    def checks(self, epochs: int) -> int:
        return 0

    def __call__(self, walk: Walk, epochs: int) -> Any:
        for _ in range(epochs):
            walk.epoch()
        return (walk.coin(0) * 0).long()


def seconds_per_step(engine: Engine, rules: Rules, individuals: int, steps: int, lasting: float = LASTING) -> float:
    """Seconds of one SGD step of one individual, when so many train together.

    The best of several stints counts; tiny steps are timed for longer, or they would be lost in what surrounds them.
    """
    task: Any = Glimpse(rules.task, steps)
    row, buffers = rules.genome.read(rules.genome.template)
    population = Population.founders(
        rules.genome,
        row.expand(individuals, -1).clone(),
        {name: value.expand(individuals, *value.shape).clone() for name, value in buffers.items()},
    )
    policies, batches = [PROBED] * individuals, min(steps, rules.task.steps({}) or steps)
    quiet = lambda phase, done, total: None  # noqa: E731
    with warnings.catch_warnings(), engine.open(replace(rules, task=task), quiet) as workshop:
        warnings.simplefilter("ignore")  # about an engine that may not be taken

        def seconds(epochs: int) -> float:
            workshop.train(population, policies, Step(k=1, epochs=epochs, backoff=_NoFitness()))
            return workshop.spent().seconds_sgd

        epochs = ceil(steps / batches)
        took = min(seconds(epochs) for _ in range(WARM))
        if took < lasting / 2:
            epochs = min(ceil(epochs * lasting / max(took, 1e-9)), MOST * epochs)
            took = min(seconds(epochs), seconds(epochs))
        return took / (individuals * batches * epochs)
