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

from esgd._tensors.layout import is_plain, laid, lead, span

LARGE = 1 << 16
"""Bytes from which a tensor or array is better left outside the pickle."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no annotations
    """cloudpickle, so that lambdas and classes of a script or notebook travel."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and is_plain(value):
            return reduced(value)
        if isinstance(value, nn.Module) and is_parametrized(value):
            return copyreg.__newobj__, (type(value),), vars(value)  # type: ignore[attr-defined]
        return super().reducer_override(value)


def reduced(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    """How a plain tensor is pickled: by its bytes and by how it lies in them."""
    content = bytearray(span(tensor).numpy())
    return _tensor, (content, tensor.dtype, tuple(tensor.shape), tensor.stride(), lead(tensor))


def _tensor(content: bytearray, *rest: Any) -> Tensor:
    return laid(torch.frombuffer(content or bytearray(1), dtype=torch.uint8)[: len(content)], *rest)
