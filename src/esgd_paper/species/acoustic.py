"""What the two speech experiments draw from (§4.1, supplement B), and how their single baselines are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from esgd.errors import RecipeError, shown
from esgd.operators import PerEpoch
from esgd.policies import Policy
from esgd.protocols import Draw, Species
from esgd.schedules import Constant, Schedule
from esgd.species import Adam, Inherited, Mixture, Sgd, Uniform
from esgd.studies import Single
from esgd_paper.species.plateau import Plateau

Range = tuple[float, float]
CONSTANT = Constant()


@dataclass(frozen=True, kw_only=True)
class HandedDown:
    """`Inherited` for several optimizers: a learning rate that is handed down stays in the range of its own.

    No experiment uses it any more. It is here for run folders and recipes that name it.
    """

    species: Species
    ranges: Mapping[str, Range]
    probability: float = 0.7
    jitter: float = 0.4

    def __post_init__(self) -> None:
        if not isinstance(self.ranges, Mapping):
            raise RecipeError(f"ranges={shown(self.ranges)} is not a mapping. Use for example {{'sgd': (0.01, 0.5)}}.")
        for range_ in (None, *self.ranges.values()):
            self._rule(range_)  # refuses what cannot be

    def _rule(self, clip: Range | None) -> Inherited:
        return Inherited(species=self.species, probability=self.probability, jitter=self.jitter, clip=clip)

    def __call__(self, request: Draw) -> Policy:
        known = request.inherited
        return self._rule(self.ranges.get(known.optimizer) if known else None)(request)


def competing(sgd: Range, adam: Range, *, gamma: float, schedule: Schedule = CONSTANT) -> Mixture:
    """The paper's two pools, in equal shares; `sgd` and `adam` are the ranges of generation 1.

    The tables anneal by γ^k with k from 1. What the miniatures' ranges were measured with is γ^(k−1), so here they are
    divided by γ.
    """
    first, second = from_first(sgd, gamma), from_first(adam, gamma)
    return Mixture(
        species=(
            Sgd(lr=Uniform(*first), gamma=gamma, schedule=schedule),
            Adam(lr=Uniform(*second), gamma=gamma, schedule=schedule),
        )
    )


def from_first(first: Range, gamma: float) -> Range:
    """[a_0, b_0], such that γ times it is the range of generation 1."""
    return first[0] / gamma, first[1] / gamma


def halving(rate: float) -> Single:
    """The single baseline as the paper trains it."""
    return Single(species=Plateau(policy=plain(rate), patience=0, factor=0.5), backoff=PerEpoch())


def plain(rate: float, schedule: Schedule = CONSTANT) -> Policy:
    """SGD without momentum."""
    return Policy(optimizer="sgd", hyper={"lr": rate}, schedule=schedule)


def nesterov(rate: float, schedule: Schedule) -> Policy:
    """SGD with Nesterov momentum 0.9."""
    return Policy(optimizer="sgd", hyper={"lr": rate, "momentum": 0.9, "nesterov": True}, schedule=schedule)
