"""Does a function recombine rows as the first term of Eq. 12 asks?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from esgd.genome import Genome
from esgd.protocols import Recombination, takes_layout
from esgd.randomness import Seeds
from esgd.testing.evidence import difference, expect, leaves_global_randomness_alone


def check_recombination(recombination: Recombination) -> None:
    """One new row from ρ rows, the same each time; from one row, that row.

    The last is more than a corner case: individuals are re-built as the offspring of themselves. A rule of (mates,
    weights, genome) is handed the layout of a small network with a plain layer and a pair of LoRA factors, and weights
    that are equal, and that go beyond one mate.

    >>> from esgd.operators import LoraProduct, intermediate
    >>> check_recombination(intermediate)
    >>> check_recombination(LoraProduct())
    """
    for dtype in (torch.float32, torch.float64):
        genome = _small(dtype)
        for rho in (1, 2, 3):
            rows = torch.randn(rho, genome.size, dtype=dtype, generator=Seeds(0)("check_recombination", rho))
            for weights in _weights(rho) if takes_layout(recombination) else ((),):
                _check_rows(_of_rows(recombination, weights, genome), rows)


def _small(dtype: torch.dtype) -> Genome:
    factors = {"lora_A": nn.Linear(4, 2, bias=False), "lora_B": nn.Linear(2, 3, bias=False)}
    return Genome.of(nn.ModuleDict({"head": nn.Linear(3, 2), **factors}).to(dtype))


def _weights(rho: int) -> list[tuple[float, ...]]:
    return [(1 / rho,) * rho, (1.5 - 0.5 * rho, *(0.5 for _ in range(rho - 1)))]


def _of_rows(recombination: Any, weights: tuple[float, ...], genome: Genome) -> Callable[[Tensor], Tensor]:
    """The rule as a function of rows alone."""
    return (lambda rows: recombination(rows, weights, genome)) if weights else recombination


def _check_rows(recombination: Callable[[Tensor], Tensor], rows: Tensor) -> None:
    given, rho = rows.clone(), len(rows)
    with leaves_global_randomness_alone("the recombination"):
        child = recombination(rows)
    expect(not difference(rows, given), "the recombination changed its mates' rows. Return a new row.")
    expect(
        child.shape == rows.shape[1:] and child.dtype == rows.dtype,
        f"the recombination made {child.dtype} of shape {tuple(child.shape)} from {rho} rows of {rows.dtype} and shape "
        f"{tuple(rows.shape)}. An offspring is one row of the same length and dtype.",
    )
    expect(
        not difference(recombination(rows), child),
        "the recombination gave two different rows for the same mates. An offspring is built a second time if it "
        "survives. Randomness belongs to the mutation, which is given a generator.",
    )
    expect(
        rho > 1 or not difference(child, rows[0]),
        "the recombination of one mate is not that mate. Parents are scored as the offspring of themselves, so each "
        "would be scored as another individual.",
    )
