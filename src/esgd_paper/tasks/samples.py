"""A part of a data set, drawn by a seed."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def some(split: tuple[Tensor, Tensor], n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """n samples of a split, in a random order; all of them if there are fewer."""
    x, y = split
    chosen = torch.randperm(len(x), generator=generator)[:n]
    return x[chosen], y[chosen]
