"""The run that comes first in an experiment: one network, which all arms begin with."""

from __future__ import annotations

from esgd.protocols import BackOff, Species
from esgd.recipe import Recipe


def first_run(species: Species, *, generations: int, sgd_epochs: int, backoff: BackOff) -> Recipe:
    """One network, trained without evolution."""
    return Recipe(
        population=1,
        elites=1,
        mates=1,
        offspring=0,
        evolution_steps=0,
        generations=generations,
        sgd_epochs=sgd_epochs,
        backoff=backoff,
        species=species,
    )
