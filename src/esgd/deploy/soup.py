"""Greedy soup (Wortsman et al., 2022): average a population's elites one by one, while the fitness does not rise.

It averages once, at the end, where ESGD averages in every generation. An average costs as much as one network.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from esgd.engines import choose
from esgd.operators import Fresh, Gaussian, Reestimated
from esgd.operators.recombination import recombination_for
from esgd.population import Birth, Individual, Population
from esgd.protocols import BufferRule, Engine, Scores, Setup, Task
from esgd.randomness import TURN, Seeds


@dataclass(frozen=True, eq=False)
class Soup:
    """The averaged network, its fitness, and how many individuals are in it."""

    model: nn.Module
    fitness: float
    models: int


def greedy_soup(
    task: Task,
    population: Population,
    *,
    elites: int | None = None,
    first: int | None = None,
    buffers: BufferRule | None = None,
    engine: str | Engine = "auto",
) -> Soup:
    """Average the `elites` best (default: all), fittest first, keeping each that does not make the fitness rise.

    It begins with individual `first` [default: the fittest], and its fitness is never above that one's. The choice
    takes a forward pass over the fitness split for every further individual, and the passes that `buffers` need.
    """
    genome = population.genome
    setup = Setup(
        task=task,
        genome=genome,
        seeds=Seeds(0),
        recombination=recombination_for(genome),
        mutation=Gaussian(),
        buffers=buffers or Reestimated(),
        baggage=Fresh(),
    )
    order = population.order[: elites or len(population)]
    order = order if first is None else [first, *(i for i in order if i != first)]
    with TURN, choose(engine, setup).engine.open(setup, lambda phase, done, total: None) as session:
        mates: tuple[int, ...] = (order[0],)
        fitness = float(population.fitness[order[0]])
        for candidate in order[1:]:
            taller = Birth("soup", mates=(*mates, candidate))
            tasted = float(session.evaluate(population, [taller]).fitness[0])
            if tasted <= fitness:
                mates, fitness = taller.mates, tasted
        if len(mates) == 1:
            alone = Individual(population, mates[0])
            return Soup(alone.module(), alone.fitness, 1)
        birth = Birth("soup", mates=mates)
        soup = session.unite(population, [birth], Scores.unknown(1), [len(population)])
    return Soup(soup.best.module(), soup.best.fitness, len(mates))
