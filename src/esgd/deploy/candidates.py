"""Which networks a run has to offer, and in which order."""

from __future__ import annotations

import torch

from esgd.generation import State
from esgd.population import Population


def candidates(state: State) -> Population:
    """The network that the run keeps, then all others of the last generation, fittest first."""
    kept, last = state.archive, state.population
    rest = last.order
    same = next((i for i in rest if _same(kept, last, i)), None)
    return kept.join(last[[i for i in rest if i != same]])


def _same(kept: Population, last: Population, i: int) -> bool:
    """Whether individual i is the one that is kept, bit for bit."""
    return torch.equal(kept.rows[0], last.rows[i]) and all(
        torch.equal(stacked[0], last.buffers[name][i]) for name, stacked in kept.buffers.items()
    )
