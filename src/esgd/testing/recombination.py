"""Does a function recombine rows as the first term of Eq. 12 asks?"""

from __future__ import annotations

import torch

from esgd.protocols import Recombination
from esgd.randomness import Seeds
from esgd.testing.evidence import difference, expect, leaves_global_randomness_alone


def check_recombination(recombination: Recombination) -> None:
    """One new row from ρ rows, the same each time; from one row, that row.

    The last is more than a corner case: individuals are re-built as the offspring of themselves.

    >>> from esgd.operators import intermediate
    >>> check_recombination(intermediate)
    """
    for dtype in (torch.float32, torch.float64):
        for rho in (1, 2, 3):
            rows = torch.randn(rho, 5, dtype=dtype, generator=Seeds(0)("check_recombination", rho))
            _check_rows(recombination, rows)


def _check_rows(recombination: Recombination, rows: torch.Tensor) -> None:
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
