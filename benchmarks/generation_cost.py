"""Where the time of a generation goes, and what ESGD costs beyond bare SGD and the fitness passes it needs.

    python -m benchmarks.generation_cost [--only auto,loop] [--repeats 20] [--quick]

μ = 100, λ = 400 on W2, three epochs a generation, a checkpoint on disk after each. Two questions, each answered by
generations of a run and bare work that alternate in one process:

- *auto*: bare is the same engine with nothing of ESGD: it trains the population without back-off, and takes as many
  complete fitness passes as the generation's ledger counts. What a generation takes longer is back-off, breeding,
  mutation, selection, building the survivors, the history and the checkpoint.
- *loop*: bare is written by hand in torch for one thread, with fused SGD, and our Loop on one thread is held against
  it: this includes what our engine adds to every step.

Bare work is done before and after each generation, and a generation is compared with the mean of the two. The error of
the measurement is twice the standard error of the median over all generations. Unless it is below 2%, nothing is
claimed.

The ledger also tells how much of the offspring's evaluation was saved because it was aborted early. That depends on the
engine, which may evaluate many at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from statistics import mean, median, stdev
from time import perf_counter
from typing import Any

import torch
from torch.nn import functional as F

import esgd
from benchmarks.engines import engine_named
from benchmarks.quiet import Quiet
from benchmarks.results import Row, arguments, save, spread
from benchmarks.sides.whole import species
from benchmarks.workloads import WORKLOADS, Workload
from esgd._algorithm.initialization import prepare, scored
from esgd.operators import Never, RandomStart
from esgd.population import Birth
from esgd.protocols import Session, Step
from esgd.run import open_folder

EPOCHS, FITNESS, TARGET, LARGEST_ERROR = 3, 1024, 3.0, 2.0
ENGINES = {"auto": "auto", "loop": "loop on one thread"}
REPEATS = {"auto": 20, "loop": 5}
Bare = Callable[[int, int], float]
"""Seconds of bare work: SGD of the population, and fitness of so many samples in the SGD step and after it."""


def by_engine(session: Session, setup: esgd.protocols.Setup, policies: list[esgd.Policy]) -> Bare:
    """The engine itself without ESGD; an offspring is a copy of a parent, for the passes' sake."""
    start = RandomStart()(setup.task, setup.genome, session, len(policies), setup.seeds.at("init"))
    population = scored(session, start)

    def bare(in_sgd: int, in_evolution: int) -> float:
        births = [Birth(id=f"1.1.{i}", mates=(i % len(population),)) for i in range(round(in_evolution / FITNESS))]
        begun = perf_counter()
        session.train(population, policies, Step(k=1, epochs=EPOCHS, backoff=Never()))
        session.evaluate(population, births)
        return perf_counter() - begun

    return bare


def by_hand(workload: Workload) -> Bare:
    """The same amount of SGD and of forward passes in the plainest torch, one thread."""
    (x, y), (fitness_x, fitness_y) = workload.data(FITNESS)
    part = FITNESS // 8  # as the library cuts a fitness of this size

    def bare(in_sgd: int, in_evolution: int) -> float:
        begun = perf_counter()
        for lr, momentum in workload.hyper():
            model = workload.make_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, fused=True)
            for _ in range(EPOCHS):
                for chosen in torch.randperm(len(x)).split(workload.batch):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x[chosen]), y[chosen]).backward()
                    optimizer.step()
        model.eval()
        with torch.no_grad():
            for number in range((in_sgd + in_evolution) // part):
                first = part * (number % (FITNESS // part))
                float(F.cross_entropy(model(fitness_x[first : first + part]), fitness_y[first : first + part]))
        return perf_counter() - begun

    return bare


def generations(
    workload: Workload, engine: str, repeats: int, exits: ExitStack
) -> Iterator[tuple[dict[str, float], Bare]]:
    """The cost of each generation, and the bare work to hold against it. The first generation warms up."""
    train, fitness = workload.data(FITNESS)
    task = esgd.Supervised(workload.make_model, workload.loss, train=train, fitness=fitness, batch_size=workload.batch)
    recipe = esgd.Recipe(population=workload.individuals, generations=repeats + 1, sgd_epochs=EPOCHS, species=species)
    setup = prepare(task, recipe, 0)
    chosen = engine_named(engine, setup, workload.individuals)
    if engine == "auto":
        policies = [esgd.Policy(optimizer="sgd", hyper={"lr": lr, "momentum": m}) for lr, m in workload.hyper()]
        session = exits.enter_context(chosen.open(setup, lambda phase, done, total: None))
        bare = by_engine(session, setup, policies)
    else:
        bare = by_hand(workload)
    folder = exits.enter_context(open_folder(exits.enter_context(tempfile.TemporaryDirectory())))
    for generation in esgd.evolve(task, recipe, seed=0, engine=chosen):
        begun, work = perf_counter(), asdict(generation.work)
        folder.save(generation.state, run="benchmark")
        yield {**work, "seconds": generation.seconds, "seconds_checkpoint": perf_counter() - begun}, bare


def rows(costs: list[dict[str, float]], bare: list[float], against: str) -> list[Row]:
    """Overhead with and without the checkpoint, the error of the measurement, and what early abort saved."""
    around = [mean(pair) for pair in pairwise(bare)]
    overhead = [100 * (cost["seconds"] / seconds - 1) for cost, seconds in zip(costs, around, strict=True)]
    saving = [100 * cost["seconds_checkpoint"] / seconds for cost, seconds in zip(costs, around, strict=True)]
    whole = [sum(pair) for pair in zip(overhead, saving, strict=True)]
    error = 2.5 * stdev(whole) / len(whole) ** 0.5
    target: dict[str, Any] = {"target": TARGET, "at_least": False} if against == "auto" else {}
    if error >= LARGEST_ERROR:
        target["doubt"] = f"the error of the measurement is {error:.1f}%"
    found = [Row(name="twice the standard error of the overhead", value=error, low=error, high=error, unit="%")]
    found.append(spread("overhead over bare SGD and fitness, checkpoint included", whole, unit="%", **target))
    found.append(spread("overhead over bare SGD and fitness", overhead, unit="%"))
    wanted = [cost["fitness_saved"] + cost["fitness_evolution"] for cost in costs]
    saved = [100 * cost["fitness_saved"] / all_ for cost, all_ in zip(costs, wanted, strict=True)]
    found.append(spread("offspring evaluation saved by early abort", saved, unit="%"))
    return found


def phases(costs: list[dict[str, float]]) -> dict[str, float]:
    """Median seconds of each phase; everything else is what no clock of a phase has seen."""
    names = ("sgd", "fitness", "evolution", "checkpoint")
    medians = {name: median(cost[f"seconds_{name}"] for cost in costs) for name in names}
    known = [sum(cost[f"seconds_{name}"] for name in names[:3]) for cost in costs]
    rest = median(max(0.0, cost["seconds"] - seconds) for cost, seconds in zip(costs, known, strict=True))
    return {**medians, "everything else": rest}


def main() -> None:
    given = arguments(__doc__)
    workload = WORKLOADS["W2x100"].tiny() if given.quick else WORKLOADS["W2x100"]
    for name in given.only or ENGINES:
        repeats = max(2, given.repeats or (2 if given.quick else REPEATS[name]))  # one has no standard error
        if name == "loop":
            torch.set_num_threads(1)
        quiet, costs, seconds = Quiet(), [], []
        with ExitStack() as exits:
            for cost, bare in generations(workload, ENGINES[name], repeats, exits):
                quiet.look()
                costs.append(cost)
                seconds.append(bare(int(cost["fitness_sgd"]), int(cost["fitness_evolution"])))
        measured = costs[1:]
        about = f"{workload.about}, {4 * workload.individuals} offspring, {EPOCHS} epochs a generation"
        save(
            given.out,
            "generation",
            name,
            rows(measured, seconds, name),
            about=about,
            busy=quiet.worst,
            phases=phases(measured),
            seconds=[cost["seconds"] for cost in measured],
            bare=seconds,
        )


if __name__ == "__main__":
    main()
