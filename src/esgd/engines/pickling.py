"""Tensors inside a pickle. torch writes an archive for each, which takes longer than training a small network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 16
"""Bytes from which a tensor or array is better left outside the pickle."""


def is_plain(tensor: Tensor) -> bool:
    """Whether bytes, dtype and shape say everything about a tensor."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def reduced(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    """How a plain tensor is pickled: by its bytes."""
    content = bytearray(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return _tensor, (content, tensor.dtype, tuple(tensor.shape))


def _tensor(content: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(content, dtype=dtype).view(shape) if content else torch.empty(shape, dtype=dtype)
