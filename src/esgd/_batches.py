"""Batches of any structure, moved to a device or copied."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from esgd._tensors import twin


def to_device(batch: Any, device: torch.device) -> Any:
    """The same batch with its tensors on `device`; tuples, named tuples, lists and dicts are searched.

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
    if isinstance(batch, tuple):
        moved = [to_device(item, device) for item in batch]
        return tuple(moved) if type(batch) is tuple else type(batch)(*moved)
    return batch


def copied(batch: Any) -> Any:
    """The same batch in memory of its own: whatever is written into it, the data stay as they are."""
    return pytree.tree_map_only(Tensor, twin, batch)
