"""Sparse and nested tensors, which cannot be indexed, copied and compared as plain ones. Refused by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from esgd._batches import tensors_in
from esgd.errors import TaskError


def check_layout(where: str, tensor: Tensor) -> None:
    """Refuse a tensor of a split that is no plain block of numbers.

    >>> check_layout("train[0]", torch.eye(2).to_sparse())
    Traceback (most recent call last):
        ...
    esgd.errors.TaskError: train[0] is a sparse tensor (sparse_coo), and samples cannot be taken out of it as out of a \
dense one. Give x.to_dense(); or, if that is too large, a Dataset with a collate_fn that makes dense batches.
    """
    if tensor.is_nested:
        raise TaskError(
            f"{where} is a nested tensor, and samples cannot be taken out of it as out of a dense one. Give "
            f"torch.nested.to_padded_tensor(x, 0.0); or a list of samples, with a collate_fn that pads them."
        )
    if tensor.layout != torch.strided:
        raise TaskError(
            f"{where} is a sparse tensor ({str(tensor.layout).removeprefix('torch.')}), and samples cannot be taken "
            f"out of it as out of a dense one. Give x.to_dense(); or, if that is too large, a Dataset with a "
            f"collate_fn that makes dense batches."
        )


def check_layouts(batch: Any) -> Any:
    """The batch, if all of its tensors are plain."""
    for tensor in tensors_in(batch):
        check_layout("a tensor of a batch", tensor)
    return batch
