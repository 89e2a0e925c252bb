"""Does a rule mutate as the second term of Eq. 12 asks?"""

from __future__ import annotations

from math import isfinite

import torch
from torch import nn

from esgd.genome import Genome
from esgd.protocols import Mutation
from esgd.randomness import Seeds
from esgd.testing.evidence import difference, expect, leaves_global_randomness_alone

SIGMA = 0.1
GENERATIONS = (1, 2, 10, 1000)


def check_mutation(mutation: Mutation) -> None:
    """A new row of the same shape and dtype, decided by the generator alone; and a strength σ_k ≥ 0 for every k.

    >>> from esgd.operators import Gaussian
    >>> check_mutation(Gaussian())
    """
    seeds = Seeds(0, ("check_mutation",))
    for k in GENERATIONS:
        _check_strength(mutation, k, seeds.at("strength", k))
    for dtype in (torch.float32, torch.float64):
        _check_noise(mutation, Genome.of(nn.Linear(4, 3, dtype=dtype)), seeds.at("noise"))


def _check_strength(mutation: Mutation, k: int, seeds: Seeds) -> None:
    with leaves_global_randomness_alone("the mutation's strength"):
        sigma = mutation.strength(k, seeds("draw"))
    expect(
        isinstance(sigma, float | int) and isfinite(sigma) and sigma >= 0,
        f"strength(k={k}) is {sigma!r}. σ_k is written into the family tree: return a plain finite number ≥ 0.",
    )
    again = mutation.strength(k, seeds("draw"))
    expect(
        again == sigma,
        f"strength(k={k}) is {sigma} and then {again} for the same generator state. An offspring is built a second "
        f"time if it survives: all randomness must come from the generator.",
    )


def _check_noise(mutation: Mutation, genome: Genome, seeds: Seeds) -> None:
    row = torch.linspace(-1.0, 1.0, genome.size, dtype=genome.dtype)
    given = row.clone()
    with leaves_global_randomness_alone("the mutation"):
        mutant = mutation(row, SIGMA, seeds("a"), genome)
    expect(
        not difference(row, given),
        "the mutation changed the row it was given. That row may be a parent's: return a new one, row + noise.",
    )
    expect(
        mutant.shape == row.shape and mutant.dtype == row.dtype,
        f"the mutation made {mutant.dtype} of shape {tuple(mutant.shape)} from a row of {row.dtype} and shape "
        f"{tuple(row.shape)}. Draw the noise with dtype=row.dtype.",
    )
    expect(mutant.isfinite().all(), f"the mutation of a finite row with sigma={SIGMA} is not finite: {mutant}.")
    expect(
        not difference(mutation(row, SIGMA, seeds("a"), genome), mutant),
        "the mutation gave two different rows for the same generator state. An offspring is built a second time if it "
        "survives: all randomness must come from the generator.",
    )
    expect(
        difference(mutation(row, SIGMA, seeds("b"), genome), mutant),
        f"the mutation with sigma={SIGMA} gave the same row for two different generators, so that all offspring of "
        f"the same mates are one. Use the generator.",
    )
