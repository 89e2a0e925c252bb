"""Breeding: from parents to births. An offspring is not built here; a birth describes how to build it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.population import Birth
from esgd.protocols import Mating, Mutation
from esgd.randomness import Seeds


def breed(
    parents: Sequence[Birth],
    fitness: Float[Tensor, " n"],
    *,
    k: int,
    v: int,
    offspring: int,
    mates: Mapping[int, float],
    mating: Mating,
    mutation: Mutation,
    seeds: Seeds,
) -> list[Birth]:
    """λ births in evolution step v of generation k: ρ mates each, the fittest first, and a mutation strength σ_k.

    `parents` and `fitness` describe the possible mates; `mates` has the probability of each number of mates.
    """
    sizes, values = list(mates), fitness.tolist()
    wheel = torch.tensor([mates[rho] for rho in sizes], dtype=torch.float64)
    births = []
    for i in range(offspring):
        here = seeds.at(k, v, i)
        rho = sizes[int(torch.multinomial(wheel, 1, generator=here("rho")))]
        chosen = mating(fitness, rho, here("mates"))
        chosen.sort(key=lambda j: (values[j], j))
        births.append(
            Birth(
                id=f"{k}.{v}.{i}",
                mates=tuple(chosen),
                sigma=mutation.strength(k, here("sigma")),
                parents=tuple(parents[j].id for j in chosen),
                founder=parents[chosen[0]].founder,
            )
        )
    return births
