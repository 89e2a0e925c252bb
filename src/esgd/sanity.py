"""One look at a run before it begins: at the data, as far as the task can tell, and at the initial networks.

Neither uses up random numbers or changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import torch
from torch import nn

from esgd.generation import Note
from esgd.operators import RandomStart
from esgd.population import Population
from esgd.protocols import Inspects, Setup
from esgd.recipe import Recipe

_LOOKED: WeakKeyDictionary[nn.Module, tuple[Note, ...]] = WeakKeyDictionary()


def look(setup: Setup) -> tuple[Note, ...]:
    """What is noteworthy about the data: what was seen, what it means and what to do. They are looked at once."""
    network = setup.genome.template
    if network not in _LOOKED and isinstance(setup.task, Inspects):
        _LOOKED[network] = tuple(Note(kind, text) for kind, text in setup.task.look(network))
    return _LOOKED.get(network, ())


def alike(population: Population, recipe: Recipe) -> Iterator[Note]:
    """A note if the initial networks are one, although each was to be initialised for itself."""
    rows = population.rows
    if len(rows) < 2 or not isinstance(recipe.start, RandomStart) or not all(torch.equal(rows[0], row) for row in rows):
        return
    yield Note(
        "identical",
        f"make_model builds the same network each time, so all {len(rows)} individuals start as one, and means of them "
        f"are the same network again. Remove the fixed seed or the loaded weights from make_model. To start from one "
        f"network on purpose, use Recipe(start=Perturbed()).",
    )
