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

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.genome import Genome

FACTORS = (("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B"))
"""What PEFT, and loralib before it, call the factors of an adapter."""

FIRST = tuple(first for first, _ in FACTORS)

DIAGONALS = ("lora_E", "lora_diag")
"""What stands between B and A in the update B·diag(E)·A of AdaLoRA and KaSA."""

OTHER_FACTORS = (*DIAGONALS, "hada_w", "lokr_w")
"""How the names of factors begin whose update is no product B·A: those with a diagonal, LoHa and LoKr."""


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
                a_child, b_child = _of_experts(
                    a_mates.double(), b_mates.double(), torch.tensor(weights).double(), _experts(genome, a)
                )
                child[a].copy_(a_child.view(child[a].shape))
                child[b].copy_(b_child.view(child[b].shape))
            else:
                child[a].copy_(each[0][a])
        return row


def lora_pairs(genome: Genome) -> list[tuple[str, str]]:
    """The names of A and B of every adapter of which both factors are trained, and whose update is their product."""
    shapes = dict(zip(genome.names, genome.shapes, strict=True))
    pairs = [(name, name.replace(a, b)) for name in genome.names for a, b in FACTORS if a in name.split(".")]
    fitting = [(a, b) for a, b in pairs if b in shapes and _fit(shapes[a], shapes[b])]
    scaled = _with_diagonal(genome)
    return [(a, b) for a, b in fitting if _place(a) not in scaled and not (_is_cut(genome, a) or _is_cut(genome, b))]


def has_other_adapters(genome: Genome) -> bool:
    """Whether there are trained adapters whose update is not B·A: AdaLoRA, KaSA, LoHa, LoKr, block-diagonal LoRA."""
    return any(
        part.startswith(OTHER_FACTORS) or (part.startswith("lora_") and _is_cut(genome, name))
        for name in genome.names
        for part in name.split(".")
    )


def _with_diagonal(genome: Genome) -> set[tuple[str, str]]:
    """The places of adapters that have a diagonal between A and B; it may be frozen."""
    names = [name for name, _ in genome.template.named_parameters() if any(each in name for each in DIAGONALS)]
    return {_place(name, DIAGONALS) for name in names if set(DIAGONALS) & set(name.split("."))}


def _is_cut(genome: Genome, factor: str) -> bool:
    """Whether a factor is block-diagonal, and its tensor has only the blocks."""
    parent = genome.template.get_submodule(factor.rpartition(".")[0])
    return int(getattr(parent, "nblocks", 1)) > 1


def _experts(genome: Genome, a: str) -> int:
    """How many products a pair has: one for each expert, where PEFT adapts a parameter of several."""
    layer = genome.template.get_submodule(_place(a)[0])
    return int(getattr(layer, "num_experts", 1)) if hasattr(layer, "parameter_name") else 1


def _place(name: str, known: Collection[str] = FIRST) -> tuple[str, str]:
    """The layer and the adapter of a factor: what is before and behind "lora_A" in its name.

    >>> _place("layers.0.lora_A.default.weight")
    ('layers.0', 'default')
    """
    parts = name.removesuffix(".weight").split(".")
    here = next(n for n, part in enumerate(parts) if part in known)
    return ".".join(parts[:here]), ".".join(parts[here + 1 :])


def _fit(a: torch.Size, b: torch.Size) -> bool:
    """Whether B·A is a product of matrices; of a convolution, with the places of its kernel in one row."""
    return len(a) >= 2 and len(b) >= 2 and a[0] == b[1:].numel()


def _of_experts(
    a: Float[Tensor, "rho R n"], b: Float[Tensor, "rho m R"], weights: Float[Tensor, " rho"], experts: int
) -> tuple[Float[Tensor, "R n"], Float[Tensor, "m R"]]:
    """A and B of all experts, each of rank r = R / experts: A has one after another, B the experts of every rank."""
    if experts == 1:
        return mean_product(a, b, weights)
    a_each, b_each = a.unflatten(1, (experts, -1)), b.unflatten(2, (-1, experts))
    children = [mean_product(a_each[:, e], b_each[..., e], weights) for e in range(experts)]
    return torch.cat([each for each, _ in children]), torch.stack([each for _, each in children], dim=2).flatten(1)


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
