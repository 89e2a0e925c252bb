"""A few real steps of a task on an engine: to time them, to count them, or to see whether they work."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from time import perf_counter
from typing import Any, cast

import torch

from esgd.engines.computing import torch_threads
from esgd.engines.network import Network
from esgd.engines.resident import with_data_on_device
from esgd.engines.sequential import Loop
from esgd.policies import Policy
from esgd.population import Population
from esgd.protocols import Batch, Counts, DealsTogether, Engine, MovesData, Settings, Setup, Step, Task, Trajectory
from esgd.randomness import Seeds

PROBED = Policy(optimizer="sgd", hyper={"lr": 1e-3, "momentum": 0.9})


WARM, LASTING, MOST = 3, 0.25, 50
"""A stint is timed so often, because in the first ones something is still started, recorded or compiled: in a pool by
one worker after the other. Then it should last so many seconds, for which it may have so many times more steps."""


class ShortenedTask:
    """A task of which only the first few batches are seen; everything else is the task's own."""

    def __init__(self, task: Task, batches: int) -> None:
        self._task, self._batches = task, batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ShortenedTask, (self._task, self._batches)

    def batches(self, seeds: Seeds, settings: Settings) -> Iterable[Batch]:
        return islice(self._task.batches(seeds, settings), self._batches)

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterable[Batch] | None:
        dealt = self._task.batches_together(seeds, settings) if isinstance(self._task, DealsTogether) else None
        return None if dealt is None else islice(dealt, self._batches)

    def on_device(self, device: torch.device, most: int) -> Task:
        task = self._task.on_device(device, most) if isinstance(self._task, MovesData) else self._task
        return cast(Task, ShortenedTask(task, self._batches))


@dataclass(frozen=True)
class _NoFitness:
    """Epochs and nothing else: a back-off that never looks."""

    certain = False

    def checks(self, epochs: float) -> int:
        return 0

    def __call__(self, trajectory: Trajectory, epochs: float) -> Any:
        trajectory.train(epochs)
        return (trajectory.coin(0) * 0).long()


@contextmanager
def trial(
    engine: Engine, setup: Setup, individuals: int, batches: int, policy: Policy = PROBED
) -> Iterator[Callable[[int], float]]:
    """Open an engine on copies of the template. Gives a function that trains them for a number of epochs, each of the
    first few batches, and returns the seconds that took. No fitness is computed, and nothing is kept."""
    task: Any = ShortenedTask(setup.task, batches)
    row, buffers = setup.genome.read(setup.genome.template)
    population = Population.founders(
        setup.genome,
        row.expand(individuals, -1).clone(),
        {name: value.expand(individuals, *value.shape).clone() for name, value in buffers.items()},
    )
    quiet = lambda phase, done, total: None  # noqa: E731
    with warnings.catch_warnings(), engine.open(replace(setup, task=task), quiet) as session:
        warnings.simplefilter("ignore")  # about an engine that may not be taken

        def train(epochs: int) -> float:
            session.train(population, [policy] * individuals, Step(k=1, epochs=epochs, backoff=_NoFitness()))
            return session.spent().seconds_sgd

        yield train


def seconds_per_step(
    engine: Engine,
    setup: Setup,
    individuals: int,
    steps: int,
    lasting: float = LASTING,
    *,
    policy: Policy = PROBED,
    repeats: int = WARM,
) -> float:
    """Seconds of one SGD step of one individual, when so many train together.

    The best of several stints counts; tiny steps are timed for longer, or they would be lost in what surrounds them.
    """
    batches = min(steps, setup.task.steps(policy.settings) or steps)
    with trial(engine, setup, individuals, steps, policy) as seconds:
        epochs = ceil(steps / batches)
        took = min(seconds(epochs) for _ in range(repeats))
        if took < lasting / 2:
            epochs = min(ceil(epochs * lasting / max(took, 1e-9)), MOST * epochs)
            took = min(seconds(epochs), seconds(epochs))
        return took / (individuals * batches * epochs)


def epoch_steps(task: Task, policy: Policy) -> int:
    """How many steps an epoch has; where the task cannot say, its batches are counted."""
    return task.steps(policy.settings) or sum(1 for _ in task.batches(Seeds(0).at("probe"), policy.settings))


@torch.no_grad()
def seconds_per_fitness(engine: Loop, setup: Setup, lasting: float = LASTING) -> float:
    """Seconds of one fitness: of its statistics, and of as many of its parts as there is time for."""
    network = Network(with_data_on_device(setup, engine.computing), engine.computing)
    task = network.setup.task
    known = task.fitness_samples() if isinstance(task, Counts) else None
    with torch_threads(engine.threads):
        begun = perf_counter()
        network.calibrate()
        statistics, spent, seen, samples = perf_counter() - begun, 0.0, 0, 0
        for number, batch in task.parts():
            if number == 0:
                network.losses([0], batch)  # the first time always takes longer
            if spent < lasting:
                begun = perf_counter()
                network.losses([0], batch)
                spent, seen = spent + perf_counter() - begun, seen + task.size(batch)
            elif known:
                break
            samples += task.size(batch)
    return statistics + (spent * (known or samples) / seen if seen else 0.0)
