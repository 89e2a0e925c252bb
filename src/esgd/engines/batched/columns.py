"""Hyper-parameters of many rows as columns: a number for each row, and for each parameter where there are groups."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from esgd._tensors.batches import to_device
from esgd.groups import Change

Columns = dict[str, Tensor]
"""A number for each row, by what it is; what is nought for every row is left out. Where a policy has groups, there are
as many columns as parameters, (p, n)."""

Changes = Sequence[Sequence[Change]]
"""For each row what its groups change for each parameter; nothing if it has no groups."""


def over(column: Tensor, stack: Tensor) -> Tensor:
    """A column in a form that fits a stack of any dimension."""
    return column.view(-1, *[1] * (stack.dim() - 1))


def columns_for(columns: Columns, number: int, stack: Tensor) -> Columns:
    """The columns of one parameter, in a form that fits its stack."""
    return {name: over(values if values.dim() == 1 else values[number], stack) for name, values in columns.items()}


class Rates:
    """Learning rates under their schedules, (n,) or (p, n): new columns only where a factor has changed."""

    def __init__(self, rates: Tensor, like: Tensor) -> None:
        self._rates, self._like = rates, like
        self._factors: Sequence[float] | None = None

    def at(self, factors: Sequence[float]) -> Tensor:
        if factors != self._factors:
            scaled = self._rates * torch.tensor(factors, dtype=torch.float64)
            self._factors, self._column = factors, as_column(scaled, self._like)
        return self._column


def as_column(values: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    """Numbers of rows in the precision of a stack, and where it is."""
    column: Tensor = to_device(torch.as_tensor(values, dtype=like.dtype), like.device)  # without waiting for a GPU
    return column


def columns_of(like: Tensor, **values: Tensor) -> Columns:
    """The columns in which there is something."""
    return {name: as_column(each, like) for name, each in values.items() if each.any()}


def in_double(values: Sequence[float]) -> Tensor:
    """Numbers of rows as they were drawn."""
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def changed(rates: Sequence[float], decay: Sequence[float], changes: Changes) -> tuple[Tensor, Tensor]:
    """Learning rates and weight decays, (n,), or (p, n) where a row has groups."""
    if not any(changes):
        return in_double(rates), in_double(decay)
    parameters = max(map(len, changes))
    rows = [row or [Change()] * parameters for row in changes]
    factors = [[1.0 if change.lr_factor is None else change.lr_factor for change in row] for row in rows]
    decays = [
        [usual if change.weight_decay is None else change.weight_decay for change in row]
        for row, usual in zip(rows, decay, strict=True)
    ]
    scaled = in_double(rates)[:, None] * torch.tensor(factors, dtype=torch.float64)
    return scaled.T.contiguous(), torch.tensor(decays, dtype=torch.float64).T.contiguous()
