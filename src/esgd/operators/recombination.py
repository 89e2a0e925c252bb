"""Recombination: the parameters of an offspring, made from those of its mates."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from esgd.genome import Genome
from esgd.operators.lora import LoraProduct, lora_pairs
from esgd.protocols import Recombination


def intermediate(mates: Float[Tensor, "rho d"]) -> Float[Tensor, " d"]:
    """Intermediate recombination, (1/ρ) Σ_j θ_j: the first term of Eq. 12.

    >>> import torch
    >>> intermediate(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    tensor([2., 4.])
    """
    return mates.mean(dim=0)


def recombination_for(genome: Genome) -> Recombination:
    """What `recombination=None` means for a network: the paper's rule, or for one with LoRA factors `LoraProduct`."""
    return LoraProduct() if lora_pairs(genome) else intermediate
