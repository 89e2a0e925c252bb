"""Kinds of offspring: which mates a birth has, how they are combined, and how strongly it is mutated.

The paper has one kind, `Mated`: ρ mates from the wheel, recombined and mutated. The others are not in the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from esgd._validation import check_field
from esgd.population import Birth
from esgd.protocols import Mating, Mutation, Scores
from esgd.randomness import Seeds

_SHARE = "It is the weight of this kind among the kinds that are drawn. Use 1."
_ALPHA = (
    "The offspring is the fittest mate + α (mean of the mates − fittest mate). Use 1 for the mean, 1.5 to go beyond."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mates:
    """The candidates, which of them may be mates, and the recipe's rules for choosing among these.

    | field      | meaning                                                        |
    |------------|----------------------------------------------------------------|
    | `last`     | whether this evolution step is expected to be the run's last   |
    | `fitness`  | of each candidate                                              |
    | `possible` | numbers of the candidates that may be mates                    |
    | `elites`   | m                                                              |
    | `sizes`    | the probability of each number of mates                        |
    | `score`    | scores of births whose `mates` are numbers of these candidates |
    """

    k: int
    last: bool
    fitness: Float[Tensor, " n"]
    possible: Sequence[int]
    elites: int
    sizes: Mapping[int, float]
    mating: Mating
    mutation: Mutation
    score: Callable[[Sequence[Birth]], Scores]

    def ranked(self) -> list[int]:
        """Those that may be mates and have a finite fitness, the fittest first."""
        return [self.possible[i] for i in self._mates.argsort(stable=True).tolist() if self._mates[i] < torch.inf]

    def drawn(self, seeds: Seeds) -> list[int]:
        """ρ mates by the recipe's rules, the fittest first."""
        sizes = list(self.sizes)
        wheel = torch.tensor([self.sizes[rho] for rho in sizes], dtype=torch.float64)
        rho = sizes[int(torch.multinomial(wheel, 1, generator=seeds("rho")))]
        chosen = [self.possible[i] for i in self.mating(self._mates, min(rho, len(self._mates)), seeds("mates"))]
        return sorted(chosen, key=lambda j: (float(self.fitness[j]), j))

    @cached_property
    def _mates(self) -> Float[Tensor, " p"]:
        return self.fitness[list(self.possible)]


@dataclass(frozen=True)
class Union:
    """What a kind decides of one offspring; without `weights` the mates are recombined by the recipe's rule."""

    mates: tuple[int, ...]
    sigma: float = 0.0
    weights: tuple[float, ...] = ()


@runtime_checkable
class OffspringKind(Protocol):
    """`name` is what a birth is called; `share` the weight in the draw, or None for one in every evolution step.

    `last` says of a generation that it is the run's last one.
    """

    @property
    def name(self) -> str: ...

    @property
    def share(self) -> float | None: ...

    def tries(self, population: int, *, last: bool) -> int:
        """How many births it scores at most before it decides on one, in a generation of so many individuals."""
        ...

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union | None:
        """One offspring, or None if there can be none."""
        ...


@dataclass(frozen=True, kw_only=True)
class Mated:
    """The paper's: ρ mates by the recipe's rules, recombined and mutated."""

    share: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "share", above=0, meaning=_SHARE)

    name = ""

    def tries(self, population: int, *, last: bool) -> int:
        return 0

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union:
        return Union(tuple(candidates.drawn(seeds)), candidates.mutation.strength(candidates.k, seeds("sigma")))


@dataclass(frozen=True, kw_only=True)
class Cloned:
    """A copy of one mate. Only the policy that it trains with next is new: population-based training's exploit."""

    share: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "share", above=0, meaning=_SHARE)

    name = "clone"

    def tries(self, population: int, *, last: bool) -> int:
        return 0

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union:
        return Union((candidates.drawn(seeds)[0],), weights=(1.0,))


@dataclass(frozen=True, kw_only=True)
class Extrapolated:
    """The fittest mate + `alpha` (mean of the mates − fittest mate), unmutated: beyond the mean for alpha > 1."""

    alpha: float = 1.5
    share: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "alpha", at_least=0, meaning=_ALPHA)
        check_field(self, "share", above=0, meaning=_SHARE)

    name = "extrapolation"

    def tries(self, population: int, *, last: bool) -> int:
        return 0

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union:
        mates = candidates.drawn(seeds)
        each = self.alpha / len(mates)
        return Union(tuple(mates), weights=(1.0 - self.alpha + each, *(each for _ in mates[1:])))


@dataclass(frozen=True, kw_only=True)
class MeanOfElites:
    """The mean of the m fittest mates, unmutated; one in every evolution step."""

    share = None

    name = "mean"

    def tries(self, population: int, *, last: bool) -> int:
        return 0

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union | None:
        mates = candidates.ranked()[: candidates.elites]
        return Union(tuple(mates), weights=(1.0 / len(mates),) * len(mates)) if len(mates) > 1 else None


@dataclass(frozen=True, kw_only=True)
class GreedySoup:
    """Mates are added to a mean, the fittest first, if the mean gets fitter by it; one in every evolution step.

    Each mate that is tried costs a fitness pass; `most` are.
    """

    most: int = 8

    share = None

    def __post_init__(self) -> None:
        check_field(self, "most", at_least=2, whole=True, meaning="So many mates are tried. Use most=8.")

    name = "soup"

    def tries(self, population: int, *, last: bool) -> int:
        return min(self.most, population) - 1

    def __call__(self, candidates: Mates, seeds: Seeds) -> Union | None:
        first, *others = candidates.ranked()[: self.most] or [0]
        soup: tuple[int, ...] = (first,)
        best = float(candidates.fitness[first])
        for mate in others:
            tried = (*soup, mate)
            birth = Birth("0.0.0", mates=tried, kind=self.name, weights=(1.0 / len(tried),) * len(tried))
            fitness = float(candidates.score([birth]).fitness[0])
            if fitness < best:
                soup, best = tried, fitness
        return Union(soup, weights=(1.0 / len(soup),) * len(soup)) if len(soup) > 1 else None
