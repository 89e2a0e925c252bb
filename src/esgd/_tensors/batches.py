"""Batches of any structure, moved to a device, copied, or searched for tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from esgd._tensors.layout import twin

DEPTH = 6
"""Objects inside objects that are searched for tensors."""


@runtime_checkable
class Movable(Protocol):
    """What moves itself to a device, such as a batch of graphs."""

    def to(self, device: torch.device, /) -> Any: ...


def to_device(batch: Any, device: torch.device) -> Any:
    """The same batch with its tensors on `device`; tuples, named tuples, lists and dicts are searched, and other
    objects are asked to move themselves, if they can.

    >>> to_device({"x": torch.ones(2), "name": "left alone"}, torch.device("cpu"))
    {'x': tensor([1., 1.]), 'name': 'left alone'}
    """
    if isinstance(batch, Tensor):
        pinned = batch.pin_memory() if device.type == "cuda" and batch.device.type == "cpu" else batch
        return pinned.to(device, non_blocking=True)
    if isinstance(batch, PackedSequence):
        return batch.to(device)  # type: ignore[arg-type]  # annotated as dtype only, takes both
    if isinstance(batch, dict):
        return {name: to_device(item, device) for name, item in batch.items()}
    if isinstance(batch, list):
        return [to_device(item, device) for item in batch]
    if isinstance(batch, torch.Size):
        return batch
    if isinstance(batch, tuple):
        moved = [to_device(item, device) for item in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch.to(device) if isinstance(batch, Movable) else batch


def copied(batch: Any) -> Any:
    """The same batch in memory of its own: whatever is written into it, the data stay as they are."""
    return pytree.tree_map(_copied_leaf, batch)


def _copied_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return twin(leaf)
    if not isinstance(leaf, Movable):
        return leaf
    clone = getattr(leaf, "clone", None)
    return clone() if callable(clone) else deepcopy(leaf)


def tensors_in(value: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """Every tensor of a batch, also in the attributes of objects that can be moved.

    >>> [tuple(each.shape) for each in tensors_in({"x": torch.ones(2), "more": [torch.ones(3), "text"]})]
    [(2,), (3,)]
    """
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, Movable) and not isinstance(value, type):
        yield from tensors_in(getattr(value, "__dict__", {}), depth - 1)
