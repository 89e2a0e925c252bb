"""Tensors and networks inside a pickle. torch writes an archive for each tensor, which takes longer than training a
small network, and refuses networks with parametrized layers."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

import cloudpickle
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

LARGE = 1 << 16
"""Bytes from which a tensor or array is better left outside the pickle."""

ALIGNMENT = 64
"""Bytes of a cache line, at which torch's own memory begins."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no annotations
    """cloudpickle, so that lambdas and classes of a script or notebook travel."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and is_plain(value):
            return reduced(value)
        if isinstance(value, nn.Module) and is_parametrized(value):
            return copyreg.__newobj__, (type(value),), vars(value)  # type: ignore[attr-defined]
        return super().reducer_override(value)


def is_plain(tensor: Tensor) -> bool:
    """Whether bytes, dtype and layout say everything about a tensor."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def reduced(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    """How a plain tensor is pickled: by its bytes and by how it lies in them.

    Strides and alignment travel too: the product of a transposed matrix, or of one that begins at another address, may
    round differently.
    """
    content = bytearray(span(tensor).numpy())
    return _tensor, (content, tensor.dtype, tuple(tensor.shape), tensor.stride(), lead(tensor))


def twin(tensor: Tensor) -> Tensor:
    """A copy that lies in its memory as the tensor does, so that nothing rounds differently."""
    if not is_plain(tensor):
        return tensor.clone()
    make, arguments = reduced(tensor)
    return make(*arguments)


def _tensor(
    content: bytearray, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...], before: int
) -> Tensor:
    if not content:
        return torch.empty(shape, dtype=dtype)
    memory = torch.empty(before + len(content), dtype=torch.uint8)
    memory[before:] = torch.frombuffer(content, dtype=torch.uint8)
    return torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), before // dtype.itemsize, shape, stride)


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
