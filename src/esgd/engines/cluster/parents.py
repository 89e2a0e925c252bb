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

from esgd.engines.cluster.serialized import Serialized
from esgd.engines.contract import IndividualSource, Stack

SLICE = 1 << 24
"""Bytes of parents in one object, or one parent if it is larger."""

SLICES_IN_MEMORY = 4
"""Slices that a worker keeps open: they cannot leave the object store, which may be smaller than the population."""


class StoredPopulation:
    """A population, as the driver offers it: slices are stored when first asked for, and go when its rows do."""

    def __init__(self, stack: Stack) -> None:
        self._tensors = [weakref.ref(tensor) for tensor in _tensors(stack)]
        size = sum(tensor[:1].nbytes for tensor in _tensors(stack))
        self._individuals = max(1, SLICE // max(1, size))
        self._stored = dict[int, tuple[Any, int]]()  # number → reference, bytes
        self._fetched = set[tuple[str, int]]()
        weakref.finalize(stack.rows, self._stored.clear).atexit = False

    def is_of(self, stack: Stack) -> bool:
        """Whether this is of that very population."""
        tensors = _tensors(stack)
        return len(tensors) == len(self._tensors) and all(a() is b for a, b in zip(self._tensors, tensors, strict=True))

    def slices(self, stack: Stack, numbers: Iterable[int], node: str) -> tuple[StoredSlices, int]:
        """The slices that have these individuals, and the bytes of those that this node has not been offered yet."""
        wanted = sorted({number // self._individuals for number in numbers})
        for number in wanted:
            if number not in self._stored:
                first = number * self._individuals
                serialized = Serialized.of(stack.take(range(first, min(first + self._individuals, len(stack.rows)))))
                self._stored[number] = ray.put(serialized), serialized.nbytes
        new = {(node, number) for number in wanted} - self._fetched
        self._fetched |= new
        references = {number: self._stored[number][0] for number in wanted}
        return StoredSlices(self._individuals, references), sum(self._stored[number][1] for _, number in new)


@dataclass(frozen=True, eq=False)
class StoredSlices:
    """Some slices of a population, as a worker reaches them."""

    individuals: int  # in a slice
    references: Mapping[int, Any]

    def source(self) -> IndividualSource:
        """Where parents are read from; each slice is fetched when one of its individuals is asked for."""

        @lru_cache(SLICES_IN_MEMORY)
        def fetch(number: int) -> Stack:
            fetched: Stack = ray.get(self.references[number]).read()
            return fetched

        return _Parents(self.individuals, fetch)


NO_SLICES = StoredSlices(1, {})


@dataclass(frozen=True, eq=False)
class _Parents:
    individuals: int
    slice: Callable[[int], Stack]

    def take(self, numbers: Sequence[int]) -> Stack:
        found = [(self.slice(number // self.individuals), number % self.individuals) for number in numbers]
        names = found[0][0].buffers
        return Stack(
            torch.stack([stack.rows[place] for stack, place in found]),
            {name: torch.stack([stack.buffers[name][place] for stack, place in found]) for name in names},
        )


def _tensors(stack: Stack) -> list[Tensor]:
    return [stack.rows, *stack.buffers.values()]
