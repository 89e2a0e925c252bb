"""What comes back from a bench after an SGD step of one individual, or of several that trained together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd.genome import Buffers, Row
from esgd.ledger import Work
from esgd.population import OptimizerState


@dataclass(frozen=True, eq=False)
class End:
    """Where the walk of an individual that backed off would have ended."""

    row: Row
    buffers: Buffers
    fitness: float
    baggage: OptimizerState | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Account:
    """What is told of n individuals after their SGD step, in the order in which they were given; see `Trained`."""

    fitness: Float[Tensor, " n"]
    moved: Bool[Tensor, " n"]
    refused: Int[Tensor, " n"]
    diverged: Bool[Tensor, " n"]
    baggage: Sequence[OptimizerState | None]
    ends: Sequence[End | None]
    work: Work


@dataclass(frozen=True, eq=False)
class Stint:
    """n individuals after their SGD step: themselves, and what is told of them."""

    rows: Float[Tensor, "n d"]
    buffers: Buffers
    account: Account


def joined(stints: Sequence[Stint]) -> Stint:
    """Several stints as one."""
    if len(stints) == 1:
        return stints[0]
    accounts, work = [stint.account for stint in stints], Work()
    for account in accounts:
        work += account.work
    return Stint(
        rows=torch.cat([stint.rows for stint in stints]),
        buffers={name: torch.cat([stint.buffers[name] for stint in stints]) for name in stints[0].buffers},
        account=Account(
            fitness=torch.cat([account.fitness for account in accounts]),
            moved=torch.cat([account.moved for account in accounts]),
            refused=torch.cat([account.refused for account in accounts]),
            diverged=torch.cat([account.diverged for account in accounts]),
            baggage=[baggage for account in accounts for baggage in account.baggage],
            ends=[end for account in accounts for end in account.ends],
            work=work,
        ),
    )
