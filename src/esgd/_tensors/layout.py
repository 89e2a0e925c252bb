"""How a tensor lies in memory. The last bits of a result depend on it: the product of a transposed matrix, or of one
that begins at another address, may round differently."""

from __future__ import annotations

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes of a cache line, at which torch's own memory begins."""


def is_plain(tensor: Tensor) -> bool:
    """Whether bytes, dtype and layout say everything about a tensor."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def span(tensor: Tensor) -> Tensor:
    """The bytes from a plain tensor's first element to its last."""
    item = tensor.dtype.itemsize
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    length = (last + 1) * item if tensor.numel() else 0
    begin = int(tensor.storage_offset()) * item
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), begin, (length,), (1,))


def lead(tensor: Tensor) -> int:
    """How many bytes after an aligned address a tensor begins: so many whole elements."""
    behind = tensor.data_ptr() % ALIGNMENT
    return behind - behind % tensor.dtype.itemsize


def laid(content: Tensor, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], before: int) -> Tensor:
    """A tensor of a copy of these bytes, which begins `before` bytes after an aligned address."""
    if not len(content):
        return torch.empty(shape, dtype=dtype)
    memory = torch.empty(before + len(content), dtype=torch.uint8)
    memory[before:] = content
    return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), before // dtype.itemsize, shape, stride)


def twin(tensor: Tensor) -> Tensor:
    """A copy that lies in its memory as the tensor does.

    >>> twin(torch.zeros(3, 2).t()).stride()
    (1, 2)
    """
    if not is_plain(tensor):
        return tensor.clone()
    return laid(span(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride(), lead(tensor))
