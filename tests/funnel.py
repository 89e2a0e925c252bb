"""A small funnel with everything that the paper's rules do not have."""

from __future__ import annotations

from esgd.operators import BestOfLooks, Elitist, GreedySoup, Mated, MeanOfElites, Uninterrupted, trajectories
from esgd.recipe import Recipe
from esgd.schedules import CosineRun
from esgd.sizes import Funnel, PerIndividual, Shared
from esgd.species import Adam, Inherited, Mixture, Sgd

FUNNEL = Recipe(
    population=Funnel(6, 2),
    offspring=PerIndividual(1),
    elites=0.25,
    generations=4,
    sgd_epochs=Shared(6),
    mates={1, 2, 4},
    backoff=BestOfLooks(),
    mates_from=trajectories,
    survival=Elitist(rest=trajectories, ranked=True),
    kinds=(Mated(), MeanOfElites(), GreedySoup()),
    baggage=Uninterrupted(),
    species=Inherited(
        species=Mixture(
            species=(
                Sgd(lr=(0.01, 0.5), gamma=1.0, schedule=CosineRun()),
                Adam(lr=(3e-4, 1e-2), gamma=1.0, schedule=CosineRun()),
            )
        ),
        probability=0.75,
        jitter=0.3,
        offspring_only=True,
    ),
)
"""The funnel of the trials, small."""
