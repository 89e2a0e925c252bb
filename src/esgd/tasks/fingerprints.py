"""Bytes that tell one batch from another, and how many bytes a batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from esgd._tensors.batches import DEPTH, tensors_in

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(value: Any, depth: int = DEPTH) -> bytes:
    """Bytes that are the same in every process: of tensors and plain values, also inside objects.

    >>> fingerprint({"b": 1, "a": "x"})
    b"a'x'b1"
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(value, Mapping) and depth:
        return b"".join(str(name).encode() + fingerprint(value[name], depth - 1) for name in sorted(value, key=str))
    if isinstance(value, tuple | list) and depth:
        return b"".join(fingerprint(item, depth - 1) for item in value)
    if isinstance(value, PLAIN):
        return repr(value).encode()
    # The repr of other objects may have an address in it, which is another one in each process.
    inside = fingerprint(vars(value), depth - 1) if depth and hasattr(value, "__dict__") else b""
    return type(value).__qualname__.encode() + inside


def size_in_bytes(batch: Any) -> int:
    """What a batch takes in memory, as far as its tensors go."""
    return sum(tensor.nbytes for tensor in tensors_in(batch))
