"""Whether a run that has ended still has the fitness that it was trained with."""

from __future__ import annotations

from esgd._algorithm.initialization import clone
from esgd.engines.choose import in_this_process
from esgd.generation import State
from esgd.guarantee import check_same_fitness
from esgd.protocols import Engine, Setup, Tick
from esgd.randomness import TURN


def check_unchanged(state: State, setup: Setup, engine: Engine, tick: Tick) -> None:
    """Score the fittest individual of a run that has ended once more, as a run that continues does; another fitness is
    refused. No worker is started for it. Where the guarantee was waived, nothing is scored: of a noisy fitness a
    difference says nothing.
    """
    if state.history[-1]["guarantee"] != "held":
        return
    population = state.population
    leader = population.order[0]
    with TURN, in_this_process(engine).open(setup, tick) as session:
        scores = session.evaluate(population, [clone(population, leader)])
    check_same_fitness(state.history[-1], float(population.fitness[leader]), float(scores.fitness[0]))
