"""Sparse and nested tensors where dense ones are needed. They are refused by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from esgd._tensors.batches import tensors_in
from esgd.errors import TaskError


def check_layout(where: str, tensor: Tensor) -> None:
    """Refuse a tensor of a split that is no plain block of numbers.

    >>> check_layout("train[0]", torch.eye(2).to_sparse())
    Traceback (most recent call last):
        ...
    esgd.errors.TaskError: train[0] is a sparse tensor (sparse_coo), and samples cannot be taken out of it as out of a \
dense one. Give x.to_dense(); or a Dataset with a collate_fn that makes dense batches, if that is too large.
    """
    if (unlike := _unlike_dense(tensor)) is not None:
        kind, cast, otherwise = unlike
        raise TaskError(
            f"{where} is {kind}, and samples cannot be taken out of it as out of a dense one. Give {cast}; or "
            f"{otherwise}."
        )


def check_layouts(batch: Any) -> Any:
    """The batch of a map-style dataset, if all of its tensors are plain.

    Batches from a function or an iterable are not checked: they have no fingerprint.
    """
    for tensor in tensors_in(batch):
        if (unlike := _unlike_dense(tensor)) is not None:
            kind, cast, _ = unlike
            raise TaskError(
                f"a tensor of a batch is {kind}. Data of a map-style Dataset are identified by the bytes of some "
                f"batches, which are read from dense tensors only. Use a collate_fn that returns {cast} instead."
            )
    return batch


def _unlike_dense(tensor: Tensor) -> tuple[str, str, str] | None:
    """What a tensor is called, how it is made dense, and what to give otherwise; None if it is dense."""
    if tensor.is_nested:
        padded = "torch.nested.to_padded_tensor(x, 0.0)"
        return "a nested tensor", padded, "a list of samples, with a collate_fn that pads them"
    if tensor.layout != torch.strided:
        kind = f"a sparse tensor ({str(tensor.layout).removeprefix('torch.')})"
        return kind, "x.to_dense()", "a Dataset with a collate_fn that makes dense batches, if that is too large"
    return None
