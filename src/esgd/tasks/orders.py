"""In which order the samples of a dataset are read, and how they are cut into batches.

Every order has an epoch, which `seeds` decide, and fixed parts: lists of indices, one for each batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from esgd.errors import TaskError
from esgd.randomness import Seeds, global_randomness, handle
from esgd.tasks.sources import FIXED, cut_lengths

Indices = list[int]


class Order(Protocol):
    """Which samples of a dataset are read when."""

    @property
    def samples(self) -> int:
        """How many, in the parts."""
        ...

    @property
    def resizable(self) -> bool:
        """Whether batches of another size can be asked for."""
        ...

    def epoch(self, seeds: Seeds, batch_size: int) -> list[Indices]:
        """The batches of an epoch."""
        ...

    def parts(self, batch_size: int) -> list[Indices]:
        """Fixed batches of all samples."""
        ...

    def steps(self, batch_size: int) -> int | None:
        """How many batches an epoch has, if that can be known."""
        ...

    def lengths(self, batch_size: int) -> list[int] | None:
        """How many samples each batch of an epoch has, if that can be known."""
        ...


@dataclass(frozen=True, eq=False)
class Shuffled:
    """All samples at these places, in a new order each time.

    >>> len(Shuffled(torch.arange(10), drop_last=True).epoch(Seeds(0), 4))
    2
    """

    places: Tensor
    drop_last: bool = False

    resizable = True

    @property
    def samples(self) -> int:
        return len(self.places)

    def epoch(self, seeds: Seeds, batch_size: int) -> list[Indices]:
        order = torch.randperm(self.samples, generator=seeds("order"))
        return _cut(self.places[order], batch_size, drop_last=self.drop_last)

    def parts(self, batch_size: int) -> list[Indices]:
        return _cut(self.places, batch_size)

    def steps(self, batch_size: int) -> int:
        return len(self.lengths(batch_size))

    def lengths(self, batch_size: int) -> list[int]:
        return _lengths(self.samples, batch_size, drop_last=self.drop_last)


@dataclass(frozen=True, eq=False)
class Straight:
    """All samples at these places, always in this order."""

    places: Tensor
    drop_last: bool = False

    resizable = True

    @property
    def samples(self) -> int:
        return len(self.places)

    def epoch(self, seeds: Seeds, batch_size: int) -> list[Indices]:
        return _cut(self.places, batch_size, drop_last=self.drop_last)

    def parts(self, batch_size: int) -> list[Indices]:
        return _cut(self.places, batch_size)

    def steps(self, batch_size: int) -> int:
        return len(self.lengths(batch_size))

    def lengths(self, batch_size: int) -> list[int]:
        return _lengths(self.samples, batch_size, drop_last=self.drop_last)


@dataclass(frozen=True, eq=False)
class Sampled:
    """What a sampler of the user's says; it draws from global generators, or one of its own, that are lent seeds."""

    sampler: Iterable[int]
    drop_last: bool = False

    resizable = True

    @cached_property
    def _fixed(self) -> Indices:
        with _lent(self.sampler, FIXED.integer("sampler")):
            return [int(index) for index in self.sampler]

    @property
    def samples(self) -> int:
        return len(self._fixed)

    def epoch(self, seeds: Seeds, batch_size: int) -> list[Indices]:
        with _lent(self.sampler, seeds.integer("sampler")):
            order = torch.tensor([int(index) for index in self.sampler], dtype=torch.int64)
        return _cut(order, batch_size, drop_last=self.drop_last)

    def parts(self, batch_size: int) -> list[Indices]:
        return _cut(torch.tensor(self._fixed), batch_size)

    def steps(self, batch_size: int) -> int | None:
        lengths = self.lengths(batch_size)
        return None if lengths is None else len(lengths)

    def lengths(self, batch_size: int) -> list[int] | None:
        length = _length(self.sampler)
        return None if length is None else _lengths(length, batch_size, drop_last=self.drop_last)


@dataclass(frozen=True, eq=False)
class Grouped:
    """The batches that a batch sampler of the user's makes."""

    sampler: Iterable[Sequence[int]]

    resizable = False

    @cached_property
    def _fixed(self) -> list[Indices]:
        with _lent(self.sampler, FIXED.integer("sampler")):
            return [[int(index) for index in batch] for batch in self.sampler]

    @property
    def samples(self) -> int:
        return sum(map(len, self._fixed))

    def epoch(self, seeds: Seeds, batch_size: int) -> list[Indices]:
        with _lent(self.sampler, seeds.integer("sampler")):
            return [[int(index) for index in batch] for batch in self.sampler]

    def parts(self, batch_size: int) -> list[Indices]:
        return self._fixed

    def steps(self, batch_size: int) -> int | None:
        return _length(self.sampler)

    def lengths(self, batch_size: int) -> None:
        return None


def _cut(order: Tensor, batch_size: int, *, drop_last: bool = False) -> list[Indices]:
    lengths = _lengths(len(order), batch_size, drop_last=drop_last)
    return [batch.tolist() for batch in order[: sum(lengths)].split(lengths)]


def _lengths(samples: int, batch_size: int, *, drop_last: bool = False) -> list[int]:
    """How long each batch is, if the last one may be shorter or is left out.

    >>> _lengths(8, 3), _lengths(7, 3), _lengths(8, 3, drop_last=True)
    ([3, 3, 2], [3, 4], [3, 3])
    """
    if not drop_last:
        return cut_lengths(samples, batch_size)
    if samples < batch_size:
        raise TaskError(
            f"drop_last=True leaves no batch: there are {samples} samples, and batch_size={batch_size}. Use smaller "
            f"batches, or drop_last=False."
        )
    return [batch_size] * (samples // batch_size)


def samplers_in(sampler: Any) -> list[Any]:
    """A sampler, and the one that it makes batches of."""
    return [each for each in (sampler, getattr(sampler, "sampler", None)) if each is not None]


def is_numbered(sampler: Any) -> bool:
    """Whether the number of its epoch decides an order and nothing else, as in a `DistributedSampler` that shuffles.

    A subclass may do anything with that number, such as a curriculum.
    """
    return type(sampler) is DistributedSampler and sampler.shuffle


@contextmanager
def _lent(sampler: Any, seed: int) -> Iterator[None]:
    """Global generators, and those that the sampler owns, under this seed; all get their states back.

    A `DistributedSampler` draws from its own seed and its epoch, so the seed is the number of its epoch.
    """
    asked = samplers_in(sampler)
    owned = [known for each in asked if (known := handle(getattr(each, "generator", None))) is not None]
    states = [each.state() for each in owned]
    numbered = [(each, each.epoch) for each in asked if is_numbered(each)]
    with global_randomness(seed):
        for each in owned:
            each.seed(seed)
        for distributed, _ in numbered:
            distributed.set_epoch(seed % 2**31)
        try:
            yield
        finally:
            for distributed, epoch in numbered:
                distributed.set_epoch(epoch)
            for each, state in zip(owned, states, strict=True):
                each.restore(state)


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return None
