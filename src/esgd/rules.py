"""Rules for training with a given amount of work: ours, the paper's, and those of every rival, in the same engines.

Each function takes a task and the work that a run may spend, and returns an ordinary `Recipe`. Work is counted in the
ledger's samples: a sample forward is 1, backward 2, and every evaluation of the fitness counts.

```python
recipe = esgd.rules.halving(task, work=5e6)
result = esgd.fit(task, recipe, seed=0)
```

`ours`, `halving`, `random_search`, `pbt`, `papa` and `soup` draw policies from `rates`, a species. Unless you give one,
it anneals learning rates by one cosine over the run, and draws a weight decay, too. The learning rates of `ours` are
then found by a range test (`FOUND`), those of the others are fixed (`RATES`). To compare rules and not ranges, give all
of them the same. `esgd.fit(task)` without a recipe trains by `ours`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from esgd._recipe_validation import MOST_SCHEDULED
from esgd._validation import LARGEST, check_number, check_species
from esgd.errors import RecipeError, did_you_mean
from esgd.operators import (
    Anchor,
    BestOfLooks,
    CarriedByMate,
    Cloned,
    Gaussian,
    GreedySoup,
    MeanOfElites,
    Never,
    Reestimated,
    Replacement,
    Rescaled,
    Truncation,
    Uninterrupted,
    trajectories,
)
from esgd.policies import Policy
from esgd.protocols import Species, SpeciesLike, Task
from esgd.ranges import usual_range
from esgd.recipe import Recipe
from esgd.schedules import CosineRun, Swa
from esgd.sizes import Each, Earned, InTheLast, Shared
from esgd.species import Fixed, Inherited, LogUniform, Mixture, Once, Optimizer, Sgd
from esgd.species.auto import settled_species
from esgd.species.optimizer_pools import Rate
from esgd.work import (
    Costs,
    check_length,
    check_work,
    expected_looks,
    expected_work,
    fitness_samples,
    multiplies_output,
    range_test_work,
    sized,
    spending,
    statistics_needed,
)

__all__ = ["halving", "ours", "papa", "paper", "pbt", "random_search", "single", "soup", "swa"]


def _annealed(sgd: Rate, adamw: Rate) -> Species:
    return Mixture(
        species=(
            Sgd(lr=sgd, gamma=1.0, schedule=CosineRun(), hyper={"weight_decay": LogUniform(1e-5, 1e-2)}),
            Optimizer(
                name="adamw",
                lr=adamw,
                gamma=1.0,
                schedule=CosineRun(),
                hyper={"weight_decay": LogUniform(1e-3, 0.3)},
            ),
        )
    )


RATES = _annealed(usual_range("sgd"), usual_range("adamw"))
"""The rates of `Recipe()`, annealed by one cosine over the run, and a weight decay."""

FOUND = _annealed("auto", "auto")
"""The same, with ranges that are found before generation 1 for this network and these data."""

FOUNDERS, MOST_FOUNDERS = 9, 81  # individuals that a race begins with: a multiple of nine
EPOCHS_FOR_NINE = 108  # of one network, that the work must suffice for, for each nine of them
TRUNKS = 2  # individuals that a race leaves
FEWEST, MOST = 3, 15  # generations after the race
SHRINK = 0.2  # of the parameters at most, where SGD begins again
RESCALE = 0.12  # of the logarithm of what an output is multiplied by: the standard deviation of its prior
TEST_SHARE = 0.1  # of the work, that a range test may take
EVEN_EPOCHS = (2, 6, 8), 8
"""Of the generations in the race, and of those after it, for data of unknown length. The mean of late iterates begins
in the middle of a generation, which must be the end of an epoch there."""

_FITNESS_SHARE = "It is the share of the work that may be spent on looking at the fitness. Use 0.2."
_POPULATION = "It is the number of networks that are trained. Use for example 16."
_GENERATIONS = "It is the number of times that the fitness is looked at. Use for example 10."

USUAL = Policy(optimizer="adam", hyper={"lr": 1e-3}, schedule=CosineRun())
"""What a person picks who does not tune."""


def ours(
    task: Task, work: float | None = None, *, fitness_share: float = 0.2, rates: SpeciesLike | None = None
) -> Recipe:
    """A race, then two trajectories that are never interrupted; offspring only while they become elites.

    Nine individuals, then the best three, then the best two share a third of the work. The two have the rest. Where the
    work suffices for hundreds of epochs, networks converge early, so more of them race: 36 for 432 epochs of one
    network, then a third, a ninth, and two, with half of the work. A trajectory competes with the best parameters that
    it has reached; the mean of its late iterates is also a candidate, and each has its output rescaled where the
    network has a layer that multiplies it (`BestOfLooks.rescale`). If a generation finds nothing better, the trajectory
    returns there and continues with a changed policy. Offspring are clones of the fittest with another policy, and
    means of elites; they take a place only from one that is less fit. SGD after a return, and that of an offspring,
    begins at parameters that are up to a fifth smaller. In the last generation the parameters of the fittest are
    multiplied by the number that lowers its fitness most (`Rescaled`).

    `work` is what Algorithm 1 spends with its default recipe, unless given. The number of generations after the race, 3
    to 15, is the largest for which evaluations of the fitness take at most `fitness_share` of the work, or three. K_s
    follows the ledger: work that offspring did not use goes into SGD. `rates` is what policies are drawn from: `FOUND`,
    by a range test that is part of the work, or `RATES` where that would be more than a tenth of it.
    """
    check_number("fitness_share", fitness_share, at_least=0, at_most=1, meaning=_FITNESS_SHARE)
    buffers, drawn_from = _enough(task), _checked(FOUND if rates is None else rates)
    if work is None and task.steps({}) is None:
        race, rest = EVEN_EPOCHS
        looks, samples = BestOfLooks(looks=(), rescale=RESCALE), fitness_samples(task)
        whole = partial(_race, buffers=buffers, rates=drawn_from, samples=samples)
        return whole(_rungs(FOUNDERS), race, rest, FEWEST + 1, looks)
    work = usual_work(task) if work is None else work
    check_work(work)
    check_length(task, f"work={work:.3g}")
    costs = Costs.of(task, Recipe(buffers=buffers, species=drawn_from))
    looks = BestOfLooks(looks=(), rescale=RESCALE if multiplies_output(task) else 0.0)
    if rates is None and range_test_work(costs, FOUND) > TEST_SHARE * work:
        drawn_from = RATES
    rungs = _rungs(_founders(work / (3.0 * sum(costs.batches))))
    share = (len(rungs) - 1) / 6

    def recipe(after: int, epochs: float) -> Recipe:
        race = [epochs * share / len(rungs) / individuals for individuals in rungs]
        rest = epochs * (1 - share) / after / TRUNKS
        return _race(rungs, race, rest, after, looks, buffers=buffers, rates=drawn_from, samples=costs.fitness)

    affordable = (
        after for after in range(MOST, FEWEST, -1) if expected_looks(costs, recipe(after, 1.0)) <= fitness_share * work
    )
    return spending(costs, sized(task, work, partial(recipe, next(affordable, FEWEST)), costs))


def _founders(epochs: float) -> int:
    """How many race, if the work suffices for so many epochs of one network.

    >>> [_founders(epochs) for epochs in (40, 160, 640, 5000)]
    [9, 9, 45, 81]
    """
    return min(MOST_FOUNDERS, FOUNDERS * max(1, int(epochs / EPOCHS_FOR_NINE)))


def _rungs(founders: int) -> tuple[int, ...]:
    """Individuals in each generation of a race: a third of those before, until two are left.

    >>> _rungs(9), _rungs(45)
    ((9, 3, 2), (45, 15, 5, 2))
    """
    rungs = [founders]
    while rungs[-1] > TRUNKS:
        rungs.append(max(TRUNKS, rungs[-1] // 3))
    return tuple(rungs)


def _race(
    rungs: Sequence[int],
    race: Sequence[float],
    rest: float,
    generations: int,
    looks: BestOfLooks,
    *,
    buffers: Reestimated,
    rates: Species,
    samples: int,
) -> Recipe:
    """Our rules with these individuals in the race, these epochs for each, and the epochs of the generations after."""
    return Recipe(
        population=Each(tuple(rungs)),
        elites=1.0,
        generations=len(rungs) + generations,
        sgd_epochs=Each((*race, rest)),
        offspring=Earned(1, 3),
        mates={2: 0.5, 3: 0.5},
        mates_from=trajectories,
        kinds=(Rescaled(samples=samples), Cloned(), MeanOfElites()),
        mutation=Gaussian(sigma=0.0),
        backoff=looks,
        baggage=Uninterrupted(returns=True, shrink=SHRINK),
        buffers=buffers,
        species=Inherited(species=rates, probability=0.75, jitter=0.3, offspring_only=True, returned=True),
    )


def usual_work(task: Task) -> float:
    """What Algorithm 1 spends on a task with its default recipe."""
    check_length(task, "a recipe that rules make")
    return expected_work(Costs.of(task, Recipe()), Recipe())


def paper(task: Task, work: float) -> Recipe:
    """Algorithm 1 with its m-elitist survival, λ = 4 μ, and back-off after every generation (Cui et al., 2018).

    Its own sizes, and as many generations as the work allows; the rest of the work goes into longer SGD steps.
    """
    plain = Recipe(buffers=_enough(task))
    check_work(work)
    check_length(task, f"work={work:.3g}")
    costs = Costs.of(task, plain)
    once = expected_work(costs, replace(plain, generations=2)) - expected_work(costs, replace(plain, generations=1))
    generations = min(MOST_SCHEDULED, max(1, int(work / once)))
    whole = sized(
        task,
        work,
        lambda epochs: replace(
            plain, generations=generations, sgd_epochs=epochs / generations / plain.population_of(1)
        ),
        costs,
    )
    return spending(costs, whole)


def random_search(task: Task, work: float, *, population: int = 16, rates: SpeciesLike = RATES) -> Recipe:
    """Networks with random policies, trained alike to the end; the best checkpoint of the best one (Bergstra and
    Bengio, 2012)."""
    buffers, drawn_once = _enough(task), Once(species=_checked(rates))
    return sized(task, work, lambda epochs: _independent(buffers, population, epochs, drawn_once))


def single(task: Task, work: float, *, policy: Policy = USUAL) -> Recipe:
    """One network with all of the work, its best checkpoint, and the averages of its trajectory."""
    buffers, kept = _enough(task), BestOfLooks(looks=())
    return sized(
        task, work, lambda epochs: replace(_independent(buffers, 1, epochs, Fixed(policy=policy)), backoff=kept)
    )


def halving(task: Task, work: float, *, rungs: tuple[int, ...] = (27, 9, 3, 1), rates: SpeciesLike = RATES) -> Recipe:
    """Successive halving (Jamieson and Talwalkar, 2016): rungs of equal work, each keeps the best third.

    Trajectories are not interrupted, share one cosine, and their averages count.
    """
    buffers, drawn_from = _enough(task), _checked(rates)
    return sized(
        task,
        work,
        lambda epochs: Recipe(
            population=Each(rungs),
            offspring=0,
            mates=1,
            elites=1.0,
            generations=len(rungs),
            sgd_epochs=Shared(epochs / len(rungs)),
            backoff=BestOfLooks(looks=()),
            baggage=Uninterrupted(),
            buffers=buffers,
            species=Inherited(species=drawn_from, offspring_only=True),
        ),
    )


def pbt(
    task: Task,
    work: float,
    *,
    population: int = 16,
    generations: int = 10,
    growth: float = 1.0,
    rates: SpeciesLike = RATES,
) -> Recipe:
    """Population-based training (Jaderberg et al., 2017): the worst quarter copies the best quarter, with its
    learning rate × 0.8 or 1.2, or in one of four cases drawn again. There is no back-off, so no guarantee.

    Each interval between two selections is `growth` times as long as the one before it.
    """
    check_number("growth", growth, at_least=0.1, at_most=10, meaning="It is the ratio of two intervals. Use 1.3.")
    check_number("population", population, at_least=2, at_most=LARGEST, whole=True, meaning=_POPULATION)
    check_number("generations", generations, at_least=1, at_most=100, whole=True, meaning=_GENERATIONS)
    lengths, buffers, quarter = [growth**k for k in range(generations)], _enough(task), max(1, population // 4)
    species = Inherited(species=_checked(rates), probability=0.75, factors=(0.8, 1.2), offspring_only=True)
    return sized(
        task,
        work,
        lambda epochs: replace(
            _independent(buffers, population, epochs, species, generations=generations),
            offspring=quarter,
            elites=population - quarter,
            evolution_steps=1,
            sgd_epochs=Each(tuple(epochs / population * length / sum(lengths) for length in lengths)),
            mating=Truncation(share=0.25),
            kinds=(Cloned(),),
            survival=Replacement(),
            backoff=Never(),
            baggage=CarriedByMate(),
        ),
    )


def papa(task: Task, work: float, *, population: int = 8, generations: int = 20, rates: SpeciesLike = RATES) -> Recipe:
    """PAPA (Jolicoeur-Martineau et al., 2023): networks are pulled towards their mean, 1% every ten steps, and averaged
    at the end. The mean that they are pulled to is that of the generation's start (see `Anchor`)."""
    buffers, drawn_from = _enough(task), _checked(rates)
    return sized(
        task,
        work,
        lambda epochs: replace(
            _independent(buffers, population, epochs, Once(species=drawn_from), generations=generations),
            anchor=Anchor(strength=0.01, every=10, after=0),
            offspring=InTheLast(2),
            evolution_steps=1,
            elites=population,
            kinds=(MeanOfElites(), GreedySoup()),
        ),
    )


def soup(task: Task, work: float, *, population: int = 16, rates: SpeciesLike = RATES) -> Recipe:
    """A greedy soup (Wortsman et al., 2022) of networks that were trained apart."""
    check_number("population", population, at_least=2, at_most=LARGEST, whole=True, meaning=_POPULATION)
    generations, buffers, drawn_from = 10, _enough(task), _checked(rates)
    return sized(
        task,
        work,
        lambda epochs: replace(
            _independent(buffers, population, epochs, Once(species=drawn_from), generations=generations),
            offspring=InTheLast(2),
            evolution_steps=1,
            elites=population,
            kinds=(GreedySoup(most=population),),
        ),
    )


def swa(task: Task, work: float, *, lr: float = 0.05) -> Recipe:
    """Stochastic weight averaging (Izmailov et al., 2018): one network, SGD with momentum, and the mean of its
    iterates from three quarters of the run on, or its best checkpoint if that is better."""
    policy, buffers = Policy(optimizer="sgd", hyper={"lr": lr, "momentum": 0.9}, schedule=Swa()), _enough(task)
    return sized(
        task,
        work,
        lambda epochs: replace(
            _independent(buffers, 1, epochs, Fixed(policy=policy), generations=1),
            backoff=BestOfLooks(looks=tuple(tenth / 10 for tenth in range(1, 10)), mean=0.25),
        ),
    )


def _independent(
    buffers: Reestimated, population: int, epochs: float, species: Species, *, generations: int = 10
) -> Recipe:
    """Networks that are trained apart, without interruption; `generations` are the looks at their fitness."""
    check_number("population", population, at_least=1, at_most=LARGEST, whole=True, meaning=_POPULATION)
    check_number("generations", generations, at_least=1, at_most=MOST_SCHEDULED, whole=True, meaning=_GENERATIONS)
    return Recipe(
        population=population,
        offspring=0,
        mates=1,
        evolution_steps=0,
        generations=generations,
        sgd_epochs=epochs / generations / population,
        species=species,
        backoff=BestOfLooks(looks=(), mean=0.0),
        baggage=Uninterrupted(),
        buffers=buffers,
    )


def _checked(rates: SpeciesLike) -> Species:
    """What policies are drawn from."""
    species = settled_species(rates, "rates")
    check_species("rates", species)
    return species


def _enough(task: Task) -> Reestimated:
    """BatchNorm statistics on as few samples as this network needs: looks get cheaper, for every rule alike."""
    return Reestimated(samples=statistics_needed(task))


RULES: Mapping[str, Callable[..., Recipe]] = {
    "ours": ours,
    "paper": paper,
    "random_search": random_search,
    "single": single,
    "halving": halving,
    "pbt": pbt,
    "papa": papa,
    "soup": soup,
    "swa": swa,
}
"""All of them by name."""


def named(name: str) -> Callable[..., Recipe]:
    """The rules of this name."""
    if name not in RULES:
        raise RecipeError(f"{name!r} are no rules of esgd.rules. {did_you_mean(name, RULES)}")
    return RULES[name]
