"""Batches for many rows at once: each row's own, stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from esgd.engines.batched.trace import form
from esgd.protocols import Batch, DealsTogether, Settings, Task
from esgd.randomness import Seeds, global_randomness, global_state, set_global_state


class UnstackableError(Exception):
    """Batches of different shapes, or of something other than tensors: their rows must be trained one by one."""


def together(task: Task, streams: Sequence[Seeds], s: int, settings: Settings) -> Iterable[Batch]:
    """Epoch s of each trajectory: batches whose tensors have the rows as their first dimension."""
    seeds = [stream.at("data", s) for stream in streams]
    if isinstance(task, DealsTogether):
        dealt = task.batches_together(seeds, settings)
        if dealt is not None:
            return dealt
    globals_ = [stream.integer("globals", s) for stream in streams]
    makers = [partial(task.batches, each, settings) for each in seeds]
    return _stacked([_Own(make, seed) for make, seed in zip(makers, globals_, strict=True)])


def _stacked(epochs: Sequence[Iterable[Batch]]) -> Iterator[Batch]:
    try:
        for batches in zip(*epochs, strict=True):
            yield stack(batches)
    except ValueError as error:
        if "zip()" in str(error):
            raise UnstackableError from error
        raise


def stack(batches: Sequence[Batch]) -> Batch:
    """One batch whose tensors are those of all batches, stacked."""
    flat = [pytree.tree_flatten(batch) for batch in batches]
    structure = flat[0][1]
    if any(other != structure for _, other in flat):
        raise UnstackableError
    return pytree.tree_unflatten(
        [_stacked_leaf(leaves) for leaves in zip(*(f for f, _ in flat), strict=True)], structure
    )


def _stacked_leaf(leaves: Sequence[Any]) -> Tensor:
    if not all(isinstance(leaf, Tensor) and leaf.shape == leaves[0].shape for leaf in leaves):
        raise UnstackableError
    return torch.stack(list(leaves))


def joined(batches: Iterator[Batch], count: int) -> Iterator[list[Batch]]:
    """The batches `count` at a time where they have one shape, and one by one elsewhere.

    >>> [len(each) for each in joined(iter([torch.zeros(2)] * 5), 2)]
    [2, 2, 1]
    """
    while some := list(islice(batches, count)):
        forms = [form(each) for each in some]
        alike = len(some) == count and all(each == forms[0] for each in forms)
        yield from [some] if alike else [[each] for each in some]


class _Own:
    """An epoch that is dealt out under global generators of its own, as it would be if its row were alone."""

    def __init__(self, make: Callable[[], Iterable[Batch]], seed: int) -> None:
        self._make, self._seed = make, seed

    def __iter__(self) -> Iterator[Batch]:
        with global_randomness(self._seed):
            batches, state = iter(self._make()), global_state()
        while True:
            with global_randomness(self._seed):
                set_global_state(state)
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                state = global_state()
            yield batch
