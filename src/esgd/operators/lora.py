"""Recombination for low-rank adapters: the mean of updates B·A, as adapters of the same rank.

An adapter of rank r changes a weight by the product B·A of two factors. The mean of the Bs times the mean of the As is
not the mean of the products, so an offspring whose rows were averaged would do something else than its mates do on
average. Here the products are averaged, and the mean, of a rank up to ρ r, is cut to its r largest singular values:
no other matrix of rank r is nearer to it (Eckart and Young, 1936).

Many pairs of factors have the same product. The one chosen has rows of A that are orthogonal and as long as those of
the mates, so that a learning rate means what it meant to them, also where the product is zero, as at the beginning. Of
all rotations it has the one that is nearest to the A of the first mate, the fittest: no sign is arbitrary, and a state
of the optimizer that comes from that mate fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.genome import Genome

FACTORS = (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B"))
"""What PEFT, and loralib before it, call the factors of an adapter."""

OTHER_FACTORS = ("lora_E", "hada_w", "lokr_w")
"""How the names of factors begin whose update is no product B·A: B·diag(E)·A of AdaLoRA, LoHa and LoKr."""


@dataclass(frozen=True, kw_only=True)
class LoraProduct:
    """The weighted mean of the products B·A of the mates, factored back to rank r; other parameters are averaged.

    What `recombination=None` chooses for a network with trainable pairs of LoRA factors. If A is frozen, or the same in
    all mates, the mean of B is exact, and nothing is factored.

    >>> from torch import nn
    >>> factors = {"lora_A": nn.Parameter(torch.ones(1, 3)), "lora_B": nn.Parameter(torch.ones(2, 1))}
    >>> genome = Genome.of(nn.ParameterDict(factors))
    >>> mates = torch.stack([torch.ones(5), -torch.ones(5)])  # their products are the same: all ones
    >>> child = genome.views(LoraProduct()(mates, (0.5, 0.5), genome))
    >>> child["lora_B"] @ child["lora_A"]
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """

    def __call__(self, mates: Float[Tensor, "rho d"], weights: Sequence[float], genome: Genome) -> Float[Tensor, " d"]:
        if len(mates) == 1 and tuple(weights) == (1.0,):
            return mates[0].clone()
        row = torch.tensor(weights, dtype=mates.dtype) @ mates
        child, each = genome.views(row), [genome.views(mate) for mate in mates]
        for a, b in lora_pairs(genome):
            a_mates = torch.stack([views[a].flatten(1) for views in each])
            if not all(torch.equal(a_mates[0], other) for other in a_mates[1:]):
                b_mates = torch.stack([views[b].flatten(1) for views in each])
                a_child, b_child = mean_product(a_mates.double(), b_mates.double(), torch.tensor(weights).double())
                child[a].copy_(a_child.view(child[a].shape))
                child[b].copy_(b_child.view(child[b].shape))
            else:
                child[a].copy_(each[0][a])
        return row


def lora_pairs(genome: Genome) -> list[tuple[str, str]]:
    """The names of A and B of every adapter of which both factors are trained. Those of AdaLoRA are no such pair."""
    shapes = dict(zip(genome.names, genome.shapes, strict=True))
    diagonals = {name for name, _ in genome.template.named_parameters() if "lora_E" in name}  # also frozen ones
    pairs = [(name, name.replace(a, b)) for name in genome.names for a, b in FACTORS if a in name.split(".")]
    plain = [(a, b) for a, b in pairs if a.replace("lora_A", "lora_E") not in diagonals]
    return [(a, b) for a, b in plain if b in shapes and _fit(shapes[a], shapes[b])]


def has_other_adapters(genome: Genome) -> bool:
    """Whether there are trained adapters whose update is not B·A: AdaLoRA, LoHa, LoKr."""
    return any(part.startswith(OTHER_FACTORS) for name in genome.names for part in name.split("."))


def _fit(a: torch.Size, b: torch.Size) -> bool:
    """Whether B·A is a product of matrices; of a convolution, with the places of its kernel in one row."""
    return len(a) >= 2 and len(b) >= 2 and a[0] == b[1:].numel()


def mean_product(
    a: Float[Tensor, "rho r n"], b: Float[Tensor, "rho m r"], weights: Float[Tensor, " rho"]
) -> tuple[Float[Tensor, "r n"], Float[Tensor, "m r"]]:
    """A and B whose product is the truncation to rank r of Σ_j w_j B_j A_j.

    The sum is the product of two matrices with ρ r columns and rows; it is never computed itself.
    """
    rank = a.shape[1]
    left = (weights[:, None, None] * b).transpose(0, 1).flatten(1)
    if not (left.isfinite().all() and a.isfinite().all()):  # of a mate that has diverged there is no product
        return torch.full_like(a[0], torch.nan), torch.full_like(b[0], torch.nan)
    q_left, r_left = torch.linalg.qr(left)
    q_right, r_right = torch.linalg.qr(a.flatten(0, 1).T)
    u, s, v = torch.linalg.svd(r_left @ r_right.T)
    length = a.square().sum(dim=2).mean().sqrt()
    a_child, b_child = torch.zeros_like(a[0]), torch.zeros_like(b[0])
    rows, kept = min(rank, len(v)), min(rank, len(s))
    a_child[:rows] = length * (v[:rows] @ q_right.T)
    b_child[:, :kept] = (q_left @ u[:, :kept]) * (s[:kept] / length if length else s[:kept])
    turned = _nearest_rotation(a[0] @ a_child.T)
    return turned @ a_child, b_child @ turned.T


def _nearest_rotation(matrix: Float[Tensor, "r r"]) -> Float[Tensor, "r r"]:
    """The orthogonal matrix that is nearest to this one."""
    u, _, v = torch.linalg.svd(matrix)
    nearest: Tensor = u @ v
    return nearest
