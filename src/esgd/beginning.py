"""Everything before generation 1: the rules of the run, the initial population, and whether the theorem applies."""

from __future__ import annotations

from dataclasses import dataclass

from esgd.errors import RecipeError
from esgd.generation import State
from esgd.genome import Genome, build
from esgd.guarantee import check_start, why_waived
from esgd.operators.start import founders, loaded
from esgd.population import Birth, Population
from esgd.protocols import Rules, Scores, Task, Workshop
from esgd.randomness import Seeds
from esgd.recipe import Recipe


def prepare(task: Task, recipe: Recipe, seed: int) -> Rules:
    """What every worker must know. The template's frozen parameters are everybody's, so its address is fixed."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise RecipeError(
            f"seed={seed!r} is not a whole number. All randomness of a run is derived from it. Use seed=0."
        )
    seeds = Seeds(seed)
    return Rules(
        task=task,
        genome=Genome.of(build(task.model, seeds.at("init", 0))),
        seeds=seeds,
        recombination=recipe.recombination,
        mutation=recipe.mutation,
        buffers=recipe.buffers,
        baggage=recipe.baggage,
        early_abort=recipe.early_abort,
    )


@dataclass(frozen=True, eq=False)
class Beginning:
    """Where a run sets out from.

    | field        | meaning                                                                          |
    |--------------|----------------------------------------------------------------------------------|
    | `state`      | Ψ^(0), or the state to go on from                                                |
    | `immigrants` | fixed networks that compete in every generation, scored once                     |
    | `waiver`     | why the guarantee is waived, or nothing                                          |
    """

    state: State
    immigrants: Population
    waiver: str


def begin(workshop: Workshop, rules: Rules, recipe: Recipe, start: Population | State | None) -> Beginning:
    """Make or take up the population, score it, and score one individual a second time."""
    if isinstance(start, State):
        state = start.adopted(rules.genome)
    else:
        make, seeds = recipe.start, rules.seeds.at("init")
        fresh = start if start is not None else make(rules.task, rules.genome, workshop, recipe.population, seeds)
        population = scored(workshop, fresh)
        state = State(0, population, population.champion)
    population = state.population
    if len(population) != recipe.population:
        raise RecipeError(
            f"the start has {len(population)} individuals, but population={recipe.population}. Algorithm 1 keeps μ "
            f"the same in every generation. Give a start of that size, or set population={len(population)}."
        )
    check_start(population)
    foreign = founders(rules.genome, [loaded(rules.genome, network) for network in recipe.immigrants], step=1)
    leader = population.order[0]
    again = workshop.evaluate(population, [_clone(population, leader)])
    waiver = why_waived(recipe, float(population.fitness[leader]), float(again.fitness[0]))
    immigrants = scored(workshop, foreign)
    if isinstance(start, State):
        workshop.spent()  # what a resumed run does again is not part of its ledger
    return Beginning(state, immigrants, waiver)


def scored(workshop: Workshop, population: Population) -> Population:
    """The same individuals with their fitness: each is built as the birth with itself as only mate, unmutated."""
    births = [_clone(population, j) for j in range(len(population))]
    return workshop.unite(population, births, Scores.unknown(len(births)), range(len(births), 2 * len(births)))


def _clone(population: Population, j: int) -> Birth:
    birth = population.births[j]
    return Birth(id=birth.id, mates=(j,), founder=birth.founder)
