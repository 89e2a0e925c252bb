"""What adapters train by where a trainer's own epochs are all the work there is: short races around its learning rate.

Sizes and shares were chosen by judgement, not measured.
"""

from __future__ import annotations

from esgd.operators import BestOfLooks, Cloned, Gaussian, MeanOfElites, Uninterrupted, trajectories
from esgd.protocols import Species
from esgd.recipe import Recipe
from esgd.sizes import Each, Earned
from esgd.species import Inherited, LogUniform

RACES = (((4, 2), 3), ((3, 1), 1))  # individuals at first and then, and generations after the first
RACE_SHARE = 1 / 3  # of the work, for the first generation
LOOKS_SHARE = 0.4  # of the work, at most, for looks at the fitness
SPREAD = 4.0
"""How far a learning rate may be from the one that was given, as a factor."""


def race(individuals: tuple[int, int], after: int, epochs: float) -> Recipe:
    """So many individuals, then the best of them in so many generations; epochs are summed over all.

    >>> race((4, 2), 3, 12.0).population
    Each(values=(4, 2))
    """
    first, then = individuals
    return Recipe(
        population=Each(individuals),
        elites=1.0,
        generations=1 + after,
        sgd_epochs=Each((epochs * RACE_SHARE / first, epochs * (1 - RACE_SHARE) / after / then)),
        offspring=Earned(1, 3) if then > 1 else 0,
        mates_from=trajectories,
        kinds=(MeanOfElites(), Cloned()),
        mutation=Gaussian(sigma=0.0),
        backoff=BestOfLooks(looks=()),
        baggage=Uninterrupted(returns=True),
    )


def rates_around(rate: float) -> LogUniform:
    """Learning rates around one that a person has chosen."""
    return LogUniform(rate / SPREAD, rate * SPREAD)


def handed_down(pool: Species) -> Inherited:
    """Networks keep their policy; offspring have their mate's with another rate, or a new one."""
    return Inherited(species=pool, probability=0.75, jitter=0.3, offspring_only=True)
