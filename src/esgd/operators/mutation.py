"""Mutation: ε ~ N(0, σ_k²), the second term of Eq. 12, on trainable parameters only, never on buffers.

σ is a standard deviation, as in the equation; the supplement says "variance" once (as a variance, 0.01
destroys a trained network). σ_k = σ_0 / k with k from 1. A range for σ_0 (Penn Treebank, [0.01, 0.15]) is drawn
per offspring.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from esgd._validation import check_number, check_range
from esgd.genome import Genome

Strength = float | tuple[float, float]

_SIGMA = (
    "A mutation strength σ_0 is a standard deviation ≥ 0, or a range (low, high) drawn per offspring. Use 0.01 as the "
    "paper does, or 0 for no mutation."
)


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """The same σ_k for every parameter.

    >>> Gaussian(sigma=0.01).strength(4, torch.Generator())
    0.0025
    """

    sigma: Strength = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _checked(self.sigma))

    def strength(self, k: int, generator: torch.Generator) -> float:
        return _drawn(self.sigma, generator) / k

    def __call__(
        self, row: Float[Tensor, " d"], sigma: float, generator: torch.Generator, genome: Genome
    ) -> Float[Tensor, " d"]:
        return torch.randn(row.shape, generator=generator, dtype=row.dtype).mul_(sigma).add_(row)


@dataclass(frozen=True, kw_only=True)
class RelativeGaussian:
    """σ_k times the root mean square of the tensor a parameter belongs to, so independent of scale. 0.1 is mild."""

    sigma: Strength = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _checked(self.sigma))

    def strength(self, k: int, generator: torch.Generator) -> float:
        return _drawn(self.sigma, generator) / k

    def __call__(
        self, row: Float[Tensor, " d"], sigma: float, generator: torch.Generator, genome: Genome
    ) -> Float[Tensor, " d"]:
        noise = torch.randn(row.shape, generator=generator, dtype=row.dtype)
        for where in genome.slices():
            noise[where] *= row[where].square().mean().sqrt()
        return noise.mul_(sigma).add_(row)


def _drawn(sigma: Strength, generator: torch.Generator) -> float:
    if not isinstance(sigma, tuple):
        return sigma
    low, high = sigma
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _checked(sigma: Strength | list[float]) -> Strength:
    if isinstance(sigma, list | tuple) and len(sigma) == 2:
        return check_range(*sigma, name="sigma", at_least=0, meaning=_SIGMA)
    strength: float = check_number("sigma", sigma, at_least=0, meaning=_SIGMA)
    return strength
