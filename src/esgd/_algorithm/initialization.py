"""Everything before generation 1: the setup of a run, the initial population, and whether the theorem applies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from numbers import Integral

from esgd._algorithm.range_finding import with_ranges
from esgd._limits import available_memory, shortage
from esgd.errors import EngineError, EsgdError, RecipeError, TaskError
from esgd.generation import Noted, State
from esgd.genome import Genome, build
from esgd.groups import check_groups
from esgd.guarantee import check_same_fitness, check_start, why_waived
from esgd.operators.recombination import recombination_for
from esgd.operators.start import founders, loaded
from esgd.population import Birth, Population
from esgd.protocols import Scores, Session, Setup, Task, TriesTraining, continues
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.sanity import alike, look

Origin = Population | State | None
"""What a run starts from: a population, the state of a generation, or, with None, what the recipe's start makes."""

BIRTH = 500  # bytes of an offspring that is yet to be built


def prepare(task: Task, recipe: Recipe, seed: int, resume: Origin = None) -> Setup:
    """What every worker must know. The frozen parameters come from what is resumed, or else from a fixed address."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise RecipeError(
            f"seed={seed!r} is not a whole number. All randomness of a run is derived from it. Use seed=0."
        )
    seeds = Seeds(int(seed))  # NumPy's integers are written differently
    genome = Genome.of(build(task.model, seeds.at("init", 0)))
    if isinstance(resume, Population | State):
        begun = resume.population.genome if isinstance(resume, State) else resume.genome
        begun.check(genome.template)
        genome = begun
    elif resume is not None:
        raise RecipeError(
            f"resume is a {type(resume).__name__}. evolve() starts from a Population or continues from the state of a "
            f"generation; to start from networks, use Recipe(start=Saved(networks=…)) or Perturbed(network=…)."
        )
    check_groups(recipe, genome.template, genome.names)
    if resume is None and isinstance(task, TriesTraining):
        task.try_training(genome.template)
    return Setup(
        task=task,
        genome=genome,
        seeds=seeds,
        recombination=recipe.recombination or recombination_for(genome),
        mutation=recipe.mutation,
        buffers=recipe.buffers,
        baggage=recipe.baggage,
    )


def check_room(setup: Setup, recipe: Recipe) -> None:
    """Refuse a population that memory cannot hold, before the system ends the process, or another one, over it."""
    row = setup.genome.size * setup.genome.dtype.itemsize
    population, offspring = recipe.largest
    needed, free = rows_at_once(recipe) * population * row + offspring * BIRTH, available_memory()
    if needed > free:
        raise EngineError(
            f"population={population} of {setup.genome.size:,} parameters each, with {offspring} "
            f"offspring, needs {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free here. While "
            f"one population is made from another, both are in memory. Use a smaller population, or a larger machine."
        )


ENDS = 3
"""Further rows of each individual where the ends of trajectories compete: its end, and both in the one tensor that has
all candidates."""


def rows_kept(recipe: Recipe) -> int:
    """Rows that each individual has between generations: itself, and where its SGD stands, if it continues there."""
    return 2 if continues(recipe.baggage) else 1


def rows_at_once(recipe: Recipe) -> int:
    """Rows that each individual has in memory while one population is made from another. The states of optimizers are
    not counted."""
    return rows_kept(recipe) + 1 + (ENDS if recipe.evolution_steps > 0 and recipe.wants_ends else 0)


def check_size(population: Population, recipe: Recipe, k: int) -> None:
    """Refuse to start generation k + 1 from a population of another size than its own."""
    if len(population) != (expected := recipe.population_of(k + 1)):
        own = f" A run continues by its own rules with result.recipe.extended({k + 10})." if k else ""
        raise RecipeError(
            f"the start has {len(population)} individuals, but generation {k + 1} of this recipe trains "
            f"{expected}. Give a population of that size, or set population={len(population)}.{own}"
        )


Beginning = tuple[State, Population, str]


def begin(session: Session, setup: Setup, recipe: Recipe, resume: Origin) -> Beginning:
    """Make or take up the population, score it, and score one individual a second time.

    Returns where the run sets out from, the immigrants, scored once, and why the guarantee is waived, or nothing.
    """
    if isinstance(resume, State):
        check_size(resume.population, recipe, resume.k)
        state = replace(resume, mark=None)  # the time since then is not of the run
    else:
        check_room(setup, recipe)
        founding = _founding(session, setup, recipe, resume)
        check_size(founding, recipe, 0)
        try:
            population = scored(session, founding)
        except EsgdError:
            raise
        except Exception as error:
            if shortage(error):
                raise  # the engine says which
            refusal = TaskError(
                f"a freshly built network cannot be scored: {type(error).__name__}: {error}. The fitness data "
                f"go through make_model's network and the loss before anything is trained, and before them, if it has "
                f"BatchNorm, the beginning of train through the network; try that by hand on one batch."
            )
            for note in getattr(error, "__notes__", ()):
                refusal.add_note(note)  # whose function it was
            raise refusal from error
        pending = () if isinstance(resume, Population) else tuple(alike(population, recipe))
        noted = Noted(pending=(*look(setup), *pending))
        state = State(0, population, population.champion, noted=noted, mark=setup.begun)
    population = state.population
    check_start(population)
    foreign = founders(setup.genome, [partial(loaded, setup.genome, each) for each in recipe.immigrants], step=1)
    leader = population.order[0]
    first = float(population.fitness[leader])
    second = float(session.evaluate(population, [clone(population, leader)]).fitness[0])
    if isinstance(resume, State):
        check_same_fitness(state.history[-1], first, second)
    waiver = why_waived(recipe, first, second)
    immigrants = scored(session, foreign)
    if isinstance(resume, State):
        session.spent()  # what a resumed run does again is not part of its ledger
    return with_ranges(session, setup, recipe, state), immigrants, waiver


def _founding(session: Session, setup: Setup, recipe: Recipe, given: Population | None) -> Population:
    """Ψ^(0), not scored yet; a population from elsewhere leaves its past behind."""
    if given is not None:
        return Population.founders(setup.genome, given.rows, given.buffers)
    return recipe.start(setup.task, setup.genome, session, recipe.population_of(1), setup.seeds.at("init"))


def scored(session: Session, population: Population) -> Population:
    """The same individuals with their fitness: each is built as the birth with itself as only mate, unmutated."""
    births = [clone(population, j) for j in range(len(population))]
    return session.unite(population, births, Scores.unknown(len(births)), range(len(births), 2 * len(births)))


def clone(population: Population, j: int) -> Birth:
    """A birth that is the individual itself, to score it again."""
    birth = population.births[j]
    return Birth(id=birth.id, mates=(j,), founder=birth.founder)
