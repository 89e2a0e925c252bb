"""Every built-in operator conforms, and every sentence of its check is earned by a plug-in that breaks it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from esgd import operators
from esgd.operators import (
    BestOf,
    BestOfLooks,
    Elitist,
    Gaussian,
    Inverse,
    LoraProduct,
    Never,
    PerEpoch,
    PerGeneration,
    Raced,
    Rank,
    RelativeGaussian,
    Roulette,
    Softmax,
    Truncation,
    anyone,
    intermediate,
    parents_only,
    trajectories,
)
from esgd.testing import check_backoff, check_mating, check_mutation, check_recombination, check_survival

MATING = [Roulette(), Roulette(smoothing=0.5), Inverse(), Rank(), Rank(smoothing=0.0), Softmax(), Truncation(), Raced()]
MUTATION = [Gaussian(), Gaussian(sigma=(0.01, 0.15)), RelativeGaussian(), RelativeGaussian(sigma=(0.0, 0.1))]
SURVIVAL = [Elitist(rest=rest) for rest in (anyone, parents_only, trajectories)]
SURVIVAL += [Elitist(rest=rest, ranked=True) for rest in (parents_only, trajectories)]
BACKOFF = [PerEpoch(), PerEpoch(probability=0.7), PerGeneration(), PerGeneration(probability=0.3), BestOf(), Never()]
BACKOFF += [BestOf(average=2), BestOf(average=3), BestOfLooks(), BestOfLooks(looks=(), mean=0.0, ema=1.0)]
BACKOFF += [BestOfLooks(rescale=0.5)]
RECOMBINATION = [LoraProduct()]
COVERED = [*MATING, *MUTATION, *SURVIVAL, *BACKOFF, *RECOMBINATION]


def test_no_operator_that_has_a_check_is_left_out() -> None:
    verbs = {"Fresh", "Carried", "CarriedByMate", "Uninterrupted", "Averaged", "FromFittest", "Reestimated", "Anchor"}
    starts = {"Perturbed", "RandomStart", "Saved"}
    kinds = {"OffspringKind", "Mated", "Cloned", "Extrapolated", "MeanOfElites", "GreedySoup", "Rescaled"}
    waives = {"Replacement"}  # offspring that are less fit take a place, which is what PBT does
    strategies = {name for name in operators.__all__ if name[0].isupper()} - verbs - starts - kinds - waives
    assert {type(each).__name__ for each in COVERED} == strategies


@pytest.mark.slow
@pytest.mark.parametrize("mating", MATING, ids=str)
def test_built_in_mating_conforms(mating: Any) -> None:
    check_mating(mating)


@pytest.mark.parametrize("mutation", MUTATION, ids=str)
def test_built_in_mutation_conforms(mutation: Any) -> None:
    check_mutation(mutation)


@pytest.mark.parametrize("survival", SURVIVAL, ids=lambda each: each.rest.__name__)
def test_built_in_survival_conforms(survival: Any) -> None:
    check_survival(survival)


@pytest.mark.slow
@pytest.mark.parametrize("backoff", BACKOFF, ids=str)
def test_built_in_back_off_conforms(backoff: Any) -> None:
    check_backoff(backoff)


@pytest.mark.parametrize(
    "recombination", [intermediate, *RECOMBINATION], ids=lambda each: getattr(each, "__name__", str(each))
)
def test_built_in_recombination_conforms(recombination: Any) -> None:
    check_recombination(recombination)


# Mating


def finite(fitness: Tensor) -> list[int]:
    return fitness.isfinite().nonzero().flatten().tolist() or list(range(len(fitness)))


def returns_a_tensor(fitness: Tensor, mates: int, generator: torch.Generator) -> Any:
    return torch.tensor(Roulette()(fitness, mates, generator))


def counts_from_one(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    return [i + 1 for i in Roulette()(fitness, mates, generator)]


def mates_with_itself(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    return [finite(fitness)[0]] * mates


def is_stingy(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    return Roulette()(fitness, 1, generator)


def mates_with_the_lost(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    most = min(mates, len(finite(fitness)))
    return torch.randperm(len(fitness), generator=generator)[:most].tolist()


def draws_from_the_world(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    order = finite(fitness)
    return [order[i] for i in torch.randperm(len(order))[:mates].tolist()]


def maximises(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    return Roulette()(torch.where(fitness.isfinite(), -fitness, fitness), mates, generator)


def sorts_in_place(fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
    fitness.copy_(fitness.sort().values)
    return list(range(min(mates, len(finite(fitness)))))


@dataclass
class TakesTurns:
    calls: list[int] = field(default_factory=list)

    def __call__(self, fitness: Tensor, mates: int, generator: torch.Generator) -> list[int]:
        self.calls.append(mates)
        order = finite(fitness)
        return [order[(i + len(self.calls)) % len(order)] for i in range(min(mates, len(order)))]


@pytest.mark.parametrize(
    ("mating", "sentence"),
    [
        (returns_a_tensor, "instead of a list"),
        (counts_from_one, "which are not indices from 0"),
        (mates_with_itself, "an individual twice"),
        (is_stingy, "returned 1 mates instead of 2"),
        (mates_with_the_lost, "of which at least one diverged"),
        (draws_from_the_world, "moved the global random generator of torch"),
        (maximises, "Is the sign turned around?"),
        (sorts_in_place, "changed the fitness it was given"),
        (TakesTurns(), "for the same generator state"),
    ],
)
def test_a_broken_mating_is_caught(mating: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_mating(mating)


# Recombination


def adds_up(mates: Tensor) -> Tensor:
    return mates.sum(dim=0) * 0.9


def keeps_the_matrix(mates: Tensor) -> Tensor:
    return mates.mean(dim=0, keepdim=True)


def works_in_double(mates: Tensor) -> Tensor:
    return mates.double().mean(dim=0)


def averages_in_place(mates: Tensor) -> Tensor:
    return mates.mul_(0.5).sum(dim=0)


def crosses_over_at_random(mates: Tensor) -> Tensor:
    return torch.where(torch.rand(mates.shape[1]) < 0.5, mates[0], mates[-1])


@dataclass
class CrossesOverByTurns:
    calls: list[int] = field(default_factory=list)

    def __call__(self, mates: Tensor) -> Tensor:
        self.calls.append(len(mates))
        return mates[len(self.calls) % len(mates)].clone()


@pytest.mark.parametrize(
    ("recombination", "sentence"),
    [
        (adds_up, "of one mate is not that mate"),
        (keeps_the_matrix, r"of shape \(1, 22\) from 1 rows"),
        (works_in_double, "torch.float64 of shape"),
        (averages_in_place, "changed its mates' rows"),
        (crosses_over_at_random, "moved the global random generator of torch"),
        (CrossesOverByTurns(), "two different rows for the same mates"),
    ],
)
def test_a_broken_recombination_is_caught(recombination: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_recombination(recombination)


# Mutation


class PlainStrength:
    def strength(self, k: int, generator: torch.Generator) -> float:
        return 0.1 / k


class NegativeStrength(PlainStrength):
    def strength(self, k: int, generator: torch.Generator) -> float:
        return 0.1 - 0.01 * k


class TensorStrength(PlainStrength):
    def strength(self, k: int, generator: torch.Generator) -> Any:
        return torch.rand((), generator=generator)


class TiringStrength(PlainStrength):
    def __init__(self) -> None:
        self.sigma = 1.0

    def strength(self, k: int, generator: torch.Generator) -> float:
        self.sigma *= 0.9
        return self.sigma


class MutatesInPlace(PlainStrength):
    def __call__(self, row: Tensor, sigma: float, generator: torch.Generator, genome: Any) -> Tensor:
        return row.add_(sigma)


class DrawsDoubles(PlainStrength):
    def __call__(self, row: Tensor, sigma: float, generator: torch.Generator, genome: Any) -> Tensor:
        return row + sigma * torch.randn(row.shape, generator=generator, dtype=torch.float64)


class DividesByZero(PlainStrength):
    def __call__(self, row: Tensor, sigma: float, generator: torch.Generator, genome: Any) -> Tensor:
        return row / (row - row)


class MutatesWithTheWorld(PlainStrength):
    def __call__(self, row: Tensor, sigma: float, generator: torch.Generator, genome: Any) -> Tensor:
        return row + sigma * torch.randn_like(row)


class ShiftsEverybody(PlainStrength):
    def __call__(self, row: Tensor, sigma: float, generator: torch.Generator, genome: Any) -> Tensor:
        return row + sigma


class WandersOff(PlainStrength):
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, row: Tensor, sigma: float, generator: torch.Generator, genome: Any) -> Tensor:
        self.calls += 1
        return row + sigma * self.calls


@pytest.mark.parametrize(
    ("mutation", "sentence"),
    [
        (NegativeStrength(), r"strength\(k=1000\) is -9.9"),
        (TensorStrength(), "return a plain finite number"),
        (TiringStrength(), "for the same generator state"),
        (MutatesInPlace(), "changed the row it was given"),
        (DrawsDoubles(), "Draw the noise with dtype=row.dtype"),
        (DividesByZero(), "is not finite"),
        (MutatesWithTheWorld(), "moved the global random generator of torch"),
        (ShiftsEverybody(), "the same row for two different generators"),
        (WandersOff(), "two different rows for the same generator state"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_broken_mutation_is_caught(mutation: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_mutation(mutation)


# Survival


@dataclass(frozen=True)
class Survives:
    """A survival rule from a function of (fitness, size, elites, generator)."""

    rule: Any
    wants_ends: bool = False

    def __call__(self, fitness: Tensor, roles: Any, *, size: int, elites: int, generator: Any) -> Any:
        return self.rule(fitness, size, elites, generator)


def truncation(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    return fitness.argsort(stable=True)[:size].tolist()


def only_the_best_is_elite(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    order = fitness.argsort(stable=True).tolist()
    return [order[0], *(i for i in torch.randperm(len(order), generator=generator).tolist() if i != order[0])][:size]


def elites_last(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    return truncation(fitness, size, elites, generator)[::-1]


def grows(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    return fitness.argsort(stable=True).tolist()


def clones_the_best(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    order = truncation(fitness, size, elites, generator)
    return order[:elites] + [order[0]] * (size - elites)


def uses_the_world(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    torch.rand(1)
    return truncation(fitness, size, elites, generator)


def forgets_the_fitness(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
    chosen = truncation(fitness, size, elites, generator)
    fitness.zero_()
    return chosen


def gives_a_tensor(fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> Tensor:
    return fitness.argsort(stable=True)[:size]


@dataclass
class Alternates:
    calls: list[int] = field(default_factory=list)

    def __call__(self, fitness: Tensor, size: int, elites: int, generator: torch.Generator) -> list[int]:
        self.calls.append(size)
        order = fitness.argsort(stable=True).tolist()
        rest = order[elites:]
        return order[:elites] + (rest if len(self.calls) % 2 else rest[::-1])[: size - elites]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (truncation, "the rest must be chosen without a look at the fitness"),
        (only_the_best_is_elite, "are not the 2 best"),
        (elites_last, "are not the 1 best"),
        (grows, "Algorithm 1 keeps μ the same"),
        (clones_the_best, "a candidate twice"),
        (uses_the_world, "moved the global random generator of torch"),
        (forgets_the_fitness, "changed the fitness it was given"),
        (gives_a_tensor, "instead of a list of indices"),
        (Alternates(), "for the same generator state"),
    ],
)
def test_a_broken_survival_is_caught(rule: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_survival(Survives(rule))


# Back-off


@dataclass(frozen=True)
class Steers:
    """A back-off strategy from a function of (trajectory, epochs)."""

    strategy: Any
    certain: bool = True
    per_epoch: int = 1

    def checks(self, epochs: int) -> int:
        return self.per_epoch * epochs

    def __call__(self, trajectory: Any, epochs: int) -> Any:
        return self.strategy(trajectory, epochs)


def never_looks_back(trajectory: Any, epochs: int) -> Tensor:
    return Never()(trajectory, epochs)


def never_measures(trajectory: Any, epochs: int) -> Tensor:
    for _ in range(epochs):
        trajectory.epoch()
    return torch.zeros(len(trajectory.fitness), dtype=torch.int64)


def restores_the_weights_only(trajectory: Any, epochs: int) -> Tensor:
    rows, before = trajectory.rows, trajectory.fitness
    for _ in range(epochs):
        trajectory.epoch()
    worse = trajectory.measure() > before
    trajectory.at = torch.where(worse[:, None], rows, trajectory.at)
    return worse.long()


def follows_the_first(trajectory: Any, epochs: int) -> Tensor:
    start, before = trajectory.snapshot(), trajectory.fitness
    for _ in range(epochs):
        trajectory.epoch()
    worse = (trajectory.measure() > before)[:1].expand(len(before))
    trajectory.restore(start, worse)
    return worse.long()


def trains_longer(trajectory: Any, epochs: int) -> Tensor:
    return PerEpoch()(trajectory, epochs + 1)


def returns_a_count(trajectory: Any, epochs: int) -> int:
    return int(PerEpoch()(trajectory, epochs).sum())


def rolls_its_own_dice(trajectory: Any, epochs: int) -> Tensor:
    torch.rand(1)
    return PerEpoch()(trajectory, epochs)


def refuses_a_lot(trajectory: Any, epochs: int) -> Tensor:
    return PerEpoch()(trajectory, epochs) + 2 * epochs


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (Steers(never_looks_back), "says that it is certain"),
        (Steers(never_measures, certain=False), "whose fitness was never measured"),
        (Steers(restores_the_weights_only), "is not that of the place where it ends"),
        (Steers(follows_the_first, certain=False), "when it is trained alone"),
        (Steers(trains_longer), "trained 2 epochs where 1 were asked for"),
        (Steers(returns_a_count), "how many updates were refused for each"),
        (Steers(rolls_its_own_dice), "moved the global random generator of torch"),
        (Steers(refuses_a_lot), "must count every comparison"),
    ],
    ids=lambda each: getattr(getattr(each, "strategy", None), "__name__", ""),
)
def test_a_broken_back_off_is_caught(strategy: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_backoff(strategy)
