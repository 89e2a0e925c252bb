"""Parents in Ray's object store, in slices: a node fetches what it needs once, and its workers read it in place."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ray
import torch
from torch import Tensor

from esgd.engines.jobs import Source, Space
from esgd.engines.ray.parcel import Parcel

SLICE = 1 << 24
"""Bytes of parents in one object, or one parent if it is larger."""

AT_HAND = 4
"""Slices that a worker keeps open: they cannot leave the object store, which may be smaller than the population."""


class Stock:
    """A population, as the driver offers it: slices are stored when first asked for, and go when its rows do."""

    def __init__(self, space: Space) -> None:
        self._tensors = [weakref.ref(tensor) for tensor in _tensors(space)]
        size = sum(tensor[:1].nbytes for tensor in _tensors(space))
        self._individuals = max(1, SLICE // max(1, size))
        self._stored = dict[int, tuple[Any, int]]()  # number → reference, bytes
        self._fetched = set[tuple[str, int]]()
        weakref.finalize(space.rows, self._stored.clear).atexit = False

    def is_of(self, space: Space) -> bool:
        """Whether this is the stock of that very population."""
        tensors = _tensors(space)
        return len(tensors) == len(self._tensors) and all(a() is b for a, b in zip(self._tensors, tensors, strict=True))

    def shelf(self, space: Space, numbers: Iterable[int], node: str) -> tuple[Shelf, int]:
        """The slices that have these individuals, and the bytes of those that this node has not been offered yet."""
        wanted = sorted({number // self._individuals for number in numbers})
        for number in wanted:
            if number not in self._stored:
                first = number * self._individuals
                parcel = Parcel.of(space.some(range(first, min(first + self._individuals, len(space.rows)))))
                self._stored[number] = ray.put(parcel), parcel.nbytes
        new = {(node, number) for number in wanted} - self._fetched
        self._fetched |= new
        references = {number: self._stored[number][0] for number in wanted}
        return Shelf(self._individuals, references), sum(self._stored[number][1] for _, number in new)


@dataclass(frozen=True, eq=False)
class Shelf:
    """Some slices of a population, as a worker reaches them."""

    individuals: int  # in a slice
    references: Mapping[int, Any]

    def source(self) -> Source:
        """Where parents can be had; each slice is fetched when one of its individuals is asked for."""
        return _Parents(self.individuals, lru_cache(AT_HAND)(lambda number: ray.get(self.references[number]).read()))


EMPTY = Shelf(1, {})


@dataclass(frozen=True, eq=False)
class _Parents:
    individuals: int
    slice: Callable[[int], Space]

    def some(self, numbers: Sequence[int]) -> Space:
        found = [(self.slice(number // self.individuals), number % self.individuals) for number in numbers]
        names = found[0][0].buffers
        return Space(
            torch.stack([space.rows[place] for space, place in found]),
            {name: torch.stack([space.buffers[name][place] for space, place in found]) for name in names},
        )


def _tensors(space: Space) -> list[Tensor]:
    return [space.rows, *space.buffers.values()]
