"""From a table to a task: which rows SGD sees and which selection sees, and in what units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, log2
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from esgd._validation import check_number, is_count
from esgd.errors import TaskError
from esgd.randomness import Seeds
from esgd.tasks import Supervised

Numbers = NDArray[np.float64]

ROUNDING = 1e-7
"""A deviation below this, relative to the mean, is rounding: the column never changes."""
FITNESS_SHARE, FITNESS_MOST = 0.2, 10_000  # rows that selection sees: a fifth, but not more than it needs
SMALLEST_BATCH, LARGEST_BATCH, STEPS = 32, 256, 32  # an epoch has about so many steps, within these batches


@dataclass(frozen=True, eq=False)
class TabularData:
    """Rows of a table, each with its weight.

    | field    | shape  | meaning                                                       |
    |----------|--------|---------------------------------------------------------------|
    | `x`      | (n, d) | the columns                                                   |
    | `y`      | (n, k) | numbers to predict; or the number of the class, then k = 1    |
    | `weight` | (n,)   | what a row counts                                             |
    """

    x: Numbers
    y: Numbers
    weight: Numbers

    def __len__(self) -> int:
        return len(self.x)

    def distinct(self) -> TabularData:
        """Every row once, with the sum of its weights, in an order that depends on nothing but the rows.

        So a row of weight 2 is the same as two rows, and no copy of a row that SGD sees is seen by selection.

        >>> twice = TabularData(np.array([[3.0], [1.0], [3.0]]), np.zeros((3, 1)), np.ones(3))
        >>> sorted(twice.distinct().weight.tolist())
        [1.0, 2.0]
        """
        rows = np.ascontiguousarray(np.hstack([self.x, self.y])) + 0.0  # -0.0 and 0.0 are one number, and two bytes
        as_bytes = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
        _, first, number = np.unique(as_bytes, return_index=True, return_inverse=True)
        return TabularData(self.x[first], self.y[first], np.bincount(number, weights=self.weight).astype(np.float64))

    def rows(self, chosen: NDArray[Any]) -> TabularData:
        """Some of the rows."""
        return TabularData(self.x[chosen], self.y[chosen], self.weight[chosen])

    def split(self, share: float | int | None, seeds: Seeds, *, classes: bool) -> tuple[TabularData, TabularData]:
        """What SGD sees and what selection sees; `share` is a fraction or a number of rows.

        Stratified: rows are sorted by their target and cut into as many strata as selection gets rows, and it gets one
        row of each. A class whose rows would all be taken from SGD is given back to it.
        """
        draw = np.random.default_rng(seeds.integer("fitness split"))
        n = len(self)
        order = np.lexsort((draw.random(n), self.y[:, 0]))
        strata = np.array_split(order, _fitness_rows(share, n))
        chosen = np.array([stratum[draw.integers(len(stratum))] for stratum in strata])
        if classes:
            everyone = np.bincount(self.y[:, 0].astype(int))
            taken = np.bincount(self.y[chosen, 0].astype(int), minlength=len(everyone))
            chosen = chosen[(taken < everyone)[self.y[chosen, 0].astype(int)]]
        if not 0 < len(chosen) < n:
            raise TaskError(
                f"{n} different rows cannot be split into some that SGD sees and some that selection sees. Give more "
                f"rows, or fitness_size as a fraction between 0 and 1."
            )
        seen = np.ones(n, dtype=bool)
        seen[chosen] = False
        return self.rows(np.flatnonzero(seen)), self.rows(np.sort(chosen))


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and deviation of each column; a column that never changes has deviation 1."""

    mean: Numbers
    deviation: Numbers

    @staticmethod
    def of(values: Numbers, weight: Numbers) -> Scale:
        """Those of (n, d) values in which row i counts `weight[i]`. No square overflows or vanishes."""
        share = (weight / weight.sum())[:, None]
        mean = (share * values).sum(axis=0)
        with np.errstate(over="ignore"):
            difference = values - mean
        if not np.isfinite(difference).all():
            column = int(np.flatnonzero(~np.isfinite(difference).all(axis=0))[0])
            raise TaskError(f"column {column} has differences that are not finite numbers. Divide it by 10 or more.")
        unit = np.ldexp(1.0, np.frexp(np.abs(difference).max(axis=0))[1] - 1)  # a power of two: exact
        deviation = np.sqrt((share * (difference / unit) ** 2).sum(axis=0)) * unit
        return Scale(mean, np.where(deviation > ROUNDING * np.abs(mean), deviation, 1.0))

    def standardised(self, values: Numbers) -> Numbers:
        """In units of the deviation, from the mean; computed in float64, so that a large mean costs no digits."""
        return (values - self.mean) / self.deviation


@dataclass(frozen=True, eq=False)
class WeightedLoss:
    """The loss of each row times its weight, which is the first column of the targets."""

    classes: bool

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        weight, wanted = target[:, 0], target[:, 1:]
        if self.classes:
            return weight * F.cross_entropy(output, wanted[:, 0].long(), reduction="none")
        return weight * F.mse_loss(output, wanted, reduction="none").mean(dim=1)


def table_task(
    make: Callable[[], nn.Module],
    train: TabularData,
    fitness: TabularData,
    *,
    classes: bool,
    batch_size: int,
    dtype: torch.dtype = torch.float32,
) -> Supervised:
    """The task of two standardised tables: cross entropy for classes, squared error for numbers. `dtype` is that of the
    networks.

    Where all rows weigh the same, the losses are torch's own.
    """
    tensor = partial(torch.as_tensor, dtype=dtype)
    if all(np.ptp(each.weight) == 0 for each in (train, fitness)):
        loss: Any = F.cross_entropy if classes else F.mse_loss
        splits = [(tensor(each.x), _classes(each) if classes else tensor(each.y)) for each in (train, fitness)]
    else:
        loss = WeightedLoss(classes)
        exact = torch.float32 if classes else dtype  # half precision has no 257, which may be the number of a class
        splits = [
            (tensor(each.x), tensor(np.hstack([(each.weight / each.weight.mean())[:, None], each.y]), dtype=exact))
            for each in (train, fitness)
        ]
    return Supervised(make, loss, train=splits[0], fitness=splits[1], batch_size=batch_size, nonnegative=True)


def batch_size_for(rows: int) -> int:
    """About 32 steps an epoch, with batches of 32 to 256: a power of two.

    >>> batch_size_for(150), batch_size_for(10_000), batch_size_for(1_000_000)
    (32, 256, 256)
    """
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, 1 << round(log2(max(1.0, rows / STEPS)))))


def standardised(table: TabularData, x: Scale, y: Scale | None) -> TabularData:
    """The table in units of its columns; targets stay as they are where they are classes."""
    return replace(table, x=x.standardised(table.x), y=table.y if y is None else y.standardised(table.y))


def _fitness_rows(share: float | int | None, n: int) -> int:
    if share is None:
        return min(FITNESS_MOST, max(1, ceil(FITNESS_SHARE * n)))
    share = int(share) if isinstance(share, np.integer) else share
    if is_count(share):
        return min(share, n)
    meaning = "It is the share of the rows that selection sees, or their number. Use for example 0.2."
    check_number("fitness_size", share, above=0, at_most=1, meaning=meaning)
    return min(n, max(1, round(share * n)))


def _classes(table: TabularData) -> Tensor:
    return torch.as_tensor(table.y[:, 0].astype(np.int64))
