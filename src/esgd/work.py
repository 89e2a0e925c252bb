"""How much work a recipe is, in the ledger's samples, before it is run; and recipes of a given amount of work.

Work counts a sample that goes forward 1 and one that goes backward 2, fitness passes included, as `ledger.passes` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil, isfinite, log2
from statistics import fmean
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from esgd._tensors.averages import IterateAverage
from esgd._validation import check_number
from esgd.budget import MOST_WORK
from esgd.engines.auto import default_device
from esgd.engines.computing import Computing
from esgd.engines.fitness import statistics_layers
from esgd.engines.network import found_output_layer
from esgd.engines.sgd import whole_and_rest
from esgd.errors import EsgdError, RecipeError, TaskError
from esgd.genome import Genome, build
from esgd.protocols import BackOff, Counts, Draw, Picks, Repeats, SpeciesLike, Task
from esgd.randomness import Seeds, global_randomness
from esgd.ranges import EXPECTED_STEPS
from esgd.recipe import Recipe, Stage
from esgd.sizes import Spending
from esgd.species.auto import auto_pools, settled_species

REHEARSED = 1_000  # epochs of an SGD step that are gone through to count its fitness passes
CLOSE = 0.005  # of the work that was asked for: a recipe is found by halving an interval until it is this near
HALVINGS = 60
DRAWN = 200  # policies over which the passes of a step are averaged
NO_STEPS = "the training data give no batch, so an epoch has no step. Give train= at least one."
CALIBRATION = 256  # samples on which it is measured how many BatchNorm needs


@dataclass(frozen=True)
class Costs:
    """Samples of one task: of the batches of an epoch, of a fitness pass, of BatchNorm's statistics, and of the split
    that picks what a run gives back."""

    batches: tuple[int, ...]
    fitness: int
    statistics: int
    pick: int = 0

    @staticmethod
    def of(task: Task, recipe: Recipe) -> Costs:
        """Counted by one pass through the data, if the task does not know it; nothing is trained."""
        seeds, passed = Seeds(0, ("count",)), _passes(task, recipe)
        known = task.batch_sizes({}) if isinstance(task, Counts) else None
        with global_randomness(seeds.integer()):
            sizes = tuple(round(passed * size) for size in known or map(task.size, task.batches(seeds, {})))
        if not sizes:
            raise TaskError(NO_STEPS)
        statistics, network = 0, build(task.model, seeds)
        if statistics_layers(network):
            statistics = sum(task.size(batch) for batch in task.calibration(recipe.buffers.samples))
        picked = task.pick_loss(network) if isinstance(task, Picks) else None
        return Costs(
            batches=sizes,
            fitness=fitness_samples(task),
            statistics=statistics,
            pick=picked[1] if picked else 0,
        )

    def sgd(self, epochs: float, before: float) -> float:
        """Work of SGD for one individual, after so many epochs; a part of an epoch is whole steps."""
        whole, rest = whole_and_rest(epochs, before, len(self.batches))
        return 3.0 * (whole * sum(self.batches) + sum(self.batches[:rest]))

    @property
    def look(self) -> float:
        """Work of one fitness."""
        return float(self.fitness + self.statistics)


def fitness_samples(task: Task) -> int:
    """Of all parts of the fitness; counted, if the task does not know it."""
    known = task.fitness_samples() if isinstance(task, Counts) else None
    return known or sum(task.size(batch) for _, batch in task.parts())


def _passes(task: Task, recipe: Recipe) -> float:
    """How often a step takes a sample through the network: the mean over policies that the recipe draws."""
    if not isinstance(task, Repeats):
        return 1.0
    stream, species = Seeds(0, ("passes",)), settled_species(recipe.species)
    draws = (Draw(k=1, j=j, generations=recipe.generations, stream=stream) for j in range(DRAWN))
    return fmean(task.repeats(policy.settings) if (policy := species(draw)) else 1 for draw in draws)


def expected_work(costs: Costs, recipe: Recipe) -> float:
    """The work of a run, if no evaluation is aborted early, and a range test takes as many steps as usual."""
    sgd = sum(times * stage.population * costs.sgd(stage.sgd_epochs, stage.before) for times, stage in alike(recipe))
    return sgd + expected_looks(costs, recipe) + range_test_work(costs, recipe.species)


def range_test_work(costs: Costs, species: SpeciesLike) -> float:
    """The part of it that finds the learning rates which are "auto"."""
    return 3.0 * EXPECTED_STEPS * len(auto_pools(species)) * sum(costs.batches) / len(costs.batches)


def expected_looks(costs: Costs, recipe: Recipe) -> float:
    """The part of it that is spent on looking at the fitness."""
    spent = _looks_in(costs, recipe)
    return costs.look * start_looks(recipe) + sum(times * spent(stage) for times, stage in alike(recipe))


def start_looks(recipe: Recipe) -> int:
    """Fitness passes before generation 1; one individual is scored twice."""
    return recipe.population_of(1) + 1 + len(recipe.immigrants)


def _looks_in(costs: Costs, recipe: Recipe) -> Callable[[Stage], float]:
    """The part of it that one generation spends. SGD steps of equal length are rehearsed once."""
    measured = cache(partial(measurements, recipe.backoff))

    def spent(stage: Stage) -> float:
        looks = stage.population * measured(stage.sgd_epochs) + expected_evaluations(recipe, stage)
        return costs.look * looks + costs.pick * stage.elites

    return spent


def alike(recipe: Recipe) -> list[tuple[int, Stage]]:
    """Generations that are alike, and how many. Where no size changes and epochs are whole, all but the last one are,
    and K may be any number."""
    if recipe.is_scheduled:
        return [(1, stage) for stage in recipe.stages()]
    first, tuning = next(recipe.stages()), [(1, stage) for stage in recipe.stages(after=recipe.generations)]
    if isinstance(recipe.sgd_epochs, float):
        begins = (k * recipe.sgd_epochs for k in range(recipe.generations))
        return [
            *(
                (1, replace(first, k=k, before=at, last=k == recipe.generations))
                for k, at in enumerate(begins, start=1)
            ),
            *tuning,
        ]
    return [(recipe.generations - 1, first), (1, replace(first, k=recipe.generations, last=True)), *tuning]


def expected_evaluations(recipe: Recipe, stage: Stage) -> int:
    """Births that are scored in the evolution steps of a generation, those that a kind only tries included."""
    births = recipe.offspring_of(stage.k)
    if not births or not stage.evolution_steps:
        return 0
    in_each, in_last = (
        sum(kind.tries(stage.population, last=last) for kind in recipe.kinds) for last in (False, stage.last)
    )
    return stage.evolution_steps * (births + in_each) + in_last - in_each


def sized(task: Task, work: float, make: Callable[[float], Recipe], costs: Costs | None = None) -> Recipe:
    """The recipe of this much work among those that `make` gives for a number of epochs, summed over all individuals.

    The number is found by halving an interval: the more epochs, the more work. `costs` are those of the task, if they
    are known: to count them may take a pass through the data.
    """
    check_work(work)
    check_length(task, f"work={work:.3g}")
    costs = costs or Costs.of(task, make(1.0))
    low, high = 0.0, max(1.0, work / (3.0 * sum(costs.batches)))
    if expected_work(costs, make(high * 1e-6)) > work * (1 + CLOSE):
        raise RecipeError(
            f"work={work:.3g} samples is too little for these rules on this task: looking at the fitness alone takes "
            f"{expected_work(costs, make(high * 1e-6)):.3g}. Give more work, or a smaller fitness set."
        )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        spent = expected_work(costs, make(middle))
        if abs(spent - work) <= CLOSE * work:
            return make(middle)
        low, high = (middle, high) if spent < work else (low, middle)
    return make(low)


def spending(costs: Costs, recipe: Recipe) -> Recipe:
    """The recipe with epochs that follow the ledger: work that is planned and not spent is trained with later."""
    stages = list(recipe.stages())
    rest = list(map(_looks_in(costs, recipe), stages))
    rest[0] += expected_looks(costs, recipe) - sum(rest) + range_test_work(costs, recipe.species)
    epochs = tuple(stage.sgd_epochs for stage in stages)
    sgd = tuple(stage.population * costs.sgd(stage.sgd_epochs, stage.before) for stage in stages)
    return replace(recipe, sgd_epochs=Spending(epochs=epochs, sgd=sgd, rest=tuple(rest)))


@torch.no_grad()
def statistics_needed(task: Task, *, error: float = 0.05, most: int = 1024) -> int:
    """On how many samples the means that BatchNorm keeps are known to `error` of a standard deviation.

    Measured on a new network: where a layer sees many places of each sample, as in a convolution, a few samples have
    many values. A power of two, at least 64.
    """
    check_number("error", error, above=0, meaning="It is in standard deviations. Use 0.05.")
    network = build(task.model, Seeds(0, ("count",)))
    layers, spreads = statistics_layers(network), list[float]()

    def look(layer: nn.Module, given: tuple[Tensor, ...], named: Mapping[str, Tensor]) -> None:
        values = (given[0] if given else named["input"]).double()
        if len(values) < 2:
            return
        x = values.transpose(0, 1).flatten(2) if values.dim() > 2 else values.T[..., None]
        whole = x.flatten(1).std(dim=1)  # of each channel; x is (channels, samples, places)
        spreads.extend((x.mean(dim=2).std(dim=1) / whole)[whole > 0].square().tolist())

    handles = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in layers]
    network.eval()
    for batch in task.calibration(CALIBRATION) if layers else ():
        task.loss(network, batch)
    for handle in handles:
        handle.remove()
    known = [spread for spread in spreads if isfinite(spread)]
    needed = max(64.0, sum(known) / len(known) / error**2) if known else most
    return min(most, 1 << ceil(log2(needed)))


def multiplies_output(task: Task) -> bool:
    """Whether the networks of a task have parameters that multiply their output: only then are places rescaled, and is
    there a fitness pass for it. Found once for each task, by a few passes of one part of the fitness."""
    try:
        if task not in _MULTIPLIES:
            _MULTIPLIES[task] = _looked_for_output_layer(task)
        return _MULTIPLIES[task]
    except TypeError:  # a task that cannot be a key
        return _looked_for_output_layer(task)


_MULTIPLIES = WeakKeyDictionary[Task, bool]()


def _looked_for_output_layer(task: Task) -> bool:
    seeds = Seeds(0, ("count",))
    try:
        with global_randomness(seeds.integer()):
            genome = Genome.of(build(task.model, seeds))
            return bool(found_output_layer(task, genome, seeds, Computing(device=default_device())))
    except EsgdError:
        raise
    except Exception:  # noqa: BLE001  # what is wrong with the task, the run itself will say better
        return False


def check_length(task: Task, what: str) -> None:
    """Refuse data of unknown length before they are read: they may have no end."""
    if task.steps({}) is None:
        raise RecipeError(
            f"{what} trains parts of epochs, and this task does not know how many batches an epoch has. Use tensors, a "
            f"Dataset, or an IterableDataset with a __len__; or leave it out and give a recipe with whole epochs."
        )


def check_work(work: object) -> None:
    """Refuse what is no amount of work."""
    check_number(
        "work",
        work,
        above=0,
        at_most=MOST_WORK,
        meaning="It is the number of samples that a run may spend. Use for example 5e6.",
    )


class _LookCounter:
    """A trajectory that goes nowhere and counts how often its fitness is asked for."""

    def __init__(self) -> None:
        self.measured, self.samples, self.scalable = 0, 0, True
        self.fitness, self.rows = torch.zeros(1, dtype=torch.float64), torch.zeros(1, 1)

    def epoch(self) -> None: ...

    def train(self, until: float, averages: Sequence[IterateAverage] = ()) -> None:
        for average in averages:
            for _ in range(average.every):
                average.take([self.rows], epochs=1.0)

    def measure(self) -> Tensor:
        self.measured += 1
        return self.fitness

    def measure_scaled(self, scales: Sequence[float]) -> Tensor:
        return self.measure().expand(len(scales), 1)

    def scale(self, factors: Tensor) -> None: ...

    def snapshot(self) -> None: ...

    def restore(self, snapshot: None, where: Tensor) -> None: ...

    def place(self, rows: Tensor) -> None: ...

    def place_average(self, average: IterateAverage) -> None: ...

    def coin(self, number: int) -> Tensor:
        return torch.zeros(1, dtype=torch.float64)


def measurements(backoff: BackOff, epochs: float) -> int:
    """Fitness passes of one SGD step, found by rehearsing it; a very long one has the rate of its first epochs."""
    if epochs <= REHEARSED:
        trajectory = _LookCounter()
        backoff(trajectory, epochs)
        return trajectory.measured
    last = measurements(backoff, REHEARSED)
    return last + round(epochs - REHEARSED) * (last - measurements(backoff, REHEARSED - 1))
