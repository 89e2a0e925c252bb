"""How fast an engine is on a task, measured in a short time: what a budget of time is planned by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from esgd.engines.auto import STARTS
from esgd.engines.choose import in_this_process
from esgd.engines.cluster import Ray
from esgd.engines.computing import cores
from esgd.engines.probe import epoch_steps, seconds_per_fitness, trial
from esgd.engines.processes import Pool
from esgd.engines.sequential import Loop
from esgd.policies import Policy
from esgd.protocols import Engine, Setup

BATCHES, MOST = 4, 1000  # of an epoch that is timed, and such epochs at most
LASTING = 0.3  # seconds of a measurement at most
TOGETHER = 64  # individuals that are timed at most; of more, the time is that many times as long
BRIEF = 0.25  # seconds of a measurement, below which few individuals are taken to need as long as many


@dataclass(frozen=True)
class Speed:
    """Seconds of a task on an engine.

    | field     | meaning                                                                            |
    |-----------|------------------------------------------------------------------------------------|
    | `workers` | processes that share the individuals                                               |
    | `steps`   | individuals that train together in one process, and seconds of one SGD step of all |
    | `look`    | of one fitness in one process                                                      |
    | `start`   | until the workers are there                                                        |
    """

    workers: int
    steps: tuple[tuple[int, float], ...]
    look: float
    start: float = 0.0

    def step(self, population: int) -> float:
        """Of one SGD step of so many individuals: a straight line through what was measured.

        >>> Speed(1, ((1, 0.25),), 0.0).step(4), Speed(2, ((2, 0.5), (4, 0.75)), 0.0).step(6)
        (1.0, 0.625)
        """
        (few, less), (many, more) = self.steps[0], self.steps[-1]
        together = ceil(population / self.workers)
        if few == many:
            return together * less / few
        slope = max(0.0, (more - less) / (many - few))
        return max(less * together / many, less + slope * (together - few))

    def looks(self, number: float) -> float:
        """Of so many fitnesses."""
        return ceil(number / self.workers) * self.look


def measure_speed(
    engine: Engine, setup: Setup, populations: Sequence[int], policies: Sequence[Policy], lasting: float
) -> Speed:
    """Time SGD steps and a fitness, each for about so many seconds.

    Of an engine with workers, what a worker does is timed in this process: to start them takes longer than all the
    rest. Nothing is compiled for the same reason.
    """
    plain, workers = in_this_process(engine), _workers(engine)
    shares = sorted({min(TOGETHER, ceil(each / workers)) for each in populations})
    lasting, brief = min(LASTING, lasting), lasting < BRIEF

    def step(n: int, chosen: Sequence[Policy]) -> float:
        return fmean(_mean_step(plain, setup, n, policy, lasting) for policy in chosen)

    if isinstance(plain, Loop):
        steps = [(1, step(1, policies))]
    else:  # to begin with a batched engine takes long, so it begins once if there is little time
        most = (shares[-1], step(shares[-1], policies[:1]))
        least = (shares[0], most[1] if brief else step(shares[0], policies[:1]))
        steps = [least, most]
    judge = plain if hasattr(plain, "computing") else Loop()
    look = min(seconds_per_fitness(judge, setup, lasting / 2) for _ in range(2))
    return Speed(workers, tuple(steps), look, STARTS if workers > 1 else 0.0)


def _mean_step(engine: Engine, setup: Setup, individuals: int, policy: Policy, lasting: float) -> float:
    """Seconds of one SGD step of so many individuals. The mean, not the best: on a machine that others use, a run has
    to wait as often as this does."""
    batches = min(BATCHES, epoch_steps(setup.task, policy))
    if slow := _slow_step(engine, setup, policy):
        return slow
    spent, epochs, more = 0.0, 0, 1
    with trial(engine, setup, individuals, BATCHES, policy) as train:
        train(1)  # the first time, something is imported, recorded or moved to the device
        while not epochs or (spent < lasting and epochs < MOST):
            spent, epochs, more = spent + train(more), epochs + more, 2 * more
    return spent / (batches * epochs)


def _slow_step(engine: Engine, setup: Setup, policy: Policy) -> float:
    """Seconds of an SGD step of one individual, if it takes longer than a whole measurement should; otherwise 0.

    Of such a network two steps are taken, and not eight. It is asked of an engine that trains one by one only: to begin
    with another one takes too long.
    """
    if not isinstance(engine, Loop):
        return 0.0
    with trial(engine, setup, 1, 1, policy) as train:
        train(1)
        took = train(1)
    return took if took > LASTING else 0.0


def _workers(engine: Engine) -> int:
    """How many workers an engine has."""
    match engine:
        case Pool():
            return len(engine.devices)
        case Ray():
            return engine.workers or cores()
        case _:
            return 1
