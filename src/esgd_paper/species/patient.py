"""Patience inside a generation, as the Penn Treebank experiment draws it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from esgd._validation import check_field, check_species
from esgd.policies import Policy
from esgd.protocols import Draw, Species
from esgd.schedules import Moment
from esgd.species import Integers
from esgd.species.distributions import Distribution, draw, is_distribution

DROP = 1 / 3  # Zolna's: what the learning rate is multiplied by when patience has run out
PATIENCE = Integers(3, 10)

_EVERY = "It counts epochs until the learning rate drops. Use 20 as Zolna et al. do."
_FACTOR = "The learning rate is multiplied by it at each drop, so it is in (0, 1]. Use 1/3 as Zolna et al. do."


@dataclass(frozen=True, kw_only=True)
class Patient:
    """Another species, whose learning rate drops by `factor` whenever a drawn `patience` has run out.

    Paper silent on what its patience of [3, 10] does. In the recipe that it builds on, patience counts the epochs
    without a new best on the validation text, and then the rate is divided by 3. An SGD step of the paper restarts a
    converged network at a high rate, where there is no new best until the rate has come down; so an individual's rate
    is divided by 3 after every `patience` epochs of a generation. (γ = 0.33 is the same division, from generation to
    generation.)
    """

    species: Species
    patience: int | Distribution = PATIENCE
    factor: float = DROP

    def __post_init__(self) -> None:
        check_species("species", self.species)
        if not is_distribution(self.patience):
            check_field(self, "patience", at_least=1, whole=True, meaning=_EVERY)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, request: Draw) -> Policy:
        policy, patience = self.species(request), draw(self.patience, request.seeds("patience"))
        settings = {**policy.settings, "patience": patience}
        return replace(policy, settings=settings, schedule=Drops(every=patience, factor=self.factor))


@dataclass(frozen=True, kw_only=True)
class Drops:
    """A schedule: multiply by `factor` after every so many epochs of a generation.

    >>> [Drops(every=3, factor=0.5)(Moment(epoch=epoch, epochs=7)) for epoch in range(7)]
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    """

    every: int
    factor: float = DROP

    def __post_init__(self) -> None:
        check_field(self, "every", at_least=1, whole=True, meaning=_EVERY)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, moment: Moment) -> float:
        return float(self.factor ** (moment.epoch // self.every))
