"""What adapters train by where a trainer's own epochs are all the work there is: short races.

Sizes and shares were chosen by judgement, not measured.
"""

from __future__ import annotations

from esgd.operators import BestOfLooks, Cloned, Gaussian, MeanOfElites, Uninterrupted, trajectories
from esgd.recipe import Recipe
from esgd.sizes import Each, Earned

RACES = (((4, 2), 3), ((3, 1), 1))  # individuals at first and then, and generations after the first
RACE_SHARE = 1 / 3  # of the work, for the first generation
LOOKS_SHARE = 0.4  # of the work, at most, for looks at the fitness


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
