"""Where the time of a generation goes, and what ESGD costs beyond bare SGD and the fitness passes it needs.

    python -m benchmarks.generation_cost [--only auto,loop] [--repeats 5] [--quick]

μ = 100, λ = 400 on W2, three epochs a generation, a checkpoint on disk after each. Two questions, each answered by
generations of a run and bare work that alternate in one process:

- *auto*: bare is the same engine with nothing of ESGD: it trains the population without back-off, and takes as many
  complete fitness passes as the generation's ledger counts. What a generation takes longer is back-off, breeding,
  mutation, selection, building the survivors, the history and the checkpoint.
- *loop*: bare is written by hand in torch for one thread, with fused SGD, and our Loop on one thread is held against
  it: this includes what our engine adds to every step.

Bare work is done twice after each generation, and the difference between the two is this measurement's own error. If
that is larger than the target, nothing is claimed.

The ledger also tells how much of the offspring's evaluation was saved because it was aborted early. That depends on the
engine, which may evaluate many at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from statistics import median
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
from esgd._initialization import prepare, scored
from esgd.operators import Never, RandomStart
from esgd.population import Birth
from esgd.protocols import Session, Step
from esgd.run import open_folder

EPOCHS, FITNESS, REPEATS, TARGET = 3, 1024, 5, 3.0
ENGINES = {"auto": "auto", "loop": "loop on one thread"}
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
    """The cost of each generation after the first, which warms up, and the bare work to hold against it."""
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
        cost = {**work, "seconds": generation.seconds, "seconds_checkpoint": perf_counter() - begun}
        if generation.k > 1:
            yield cost, bare


def rows(costs: list[dict[str, float]], twice: list[tuple[float, float]], against: str) -> list[Row]:
    """Overhead with and without the checkpoint, the error of the measurement, and what early abort saved."""
    pairs = [(cost, (first + second) / 2) for cost, (first, second) in zip(costs, twice, strict=True)]
    errors = [100 * (second / first - 1) for first, second in twice]
    found = [spread("the measurement's own error: bare work against itself", errors, unit="%")]
    target: dict[str, Any] = {"target": TARGET, "at_least": False} if against == "auto" else {}
    if (error := max(map(abs, errors))) > TARGET:
        target["doubt"] = f"bare work against itself differs by {error:.0f}%"
    whole = [100 * ((cost["seconds"] + cost["seconds_checkpoint"]) / bare - 1) for cost, bare in pairs]
    found.append(spread("overhead over bare SGD and fitness, checkpoint included", whole, unit="%", **target))
    found.append(
        spread("overhead over bare SGD and fitness", [100 * (c["seconds"] / b - 1) for c, b in pairs], unit="%")
    )
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
    repeats = given.repeats or (1 if given.quick else REPEATS)
    for name in given.only or ENGINES:
        if name == "loop":
            torch.set_num_threads(1)
        quiet, costs, twice = Quiet(), [], []
        with ExitStack() as exits:
            for cost, bare in generations(workload, ENGINES[name], repeats, exits):
                quiet.look()
                samples = int(cost["fitness_sgd"]), int(cost["fitness_evolution"])
                costs.append(cost)
                twice.append((bare(*samples), bare(*samples)))
                quiet.look()
        about = f"{workload.about}, {4 * workload.individuals} offspring, {EPOCHS} epochs a generation"
        save(
            given.out,
            "generation",
            name,
            rows(costs, twice, name),
            about=about,
            busy=quiet.worst,
            phases=phases(costs),
            seconds=[cost["seconds"] for cost in costs],
            bare=twice,
        )


if __name__ == "__main__":
    main()
