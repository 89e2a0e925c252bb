"""NumPy arrays and pandas frames as tensors, with a word where their dtype is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from esgd.errors import TaskError
from esgd.tasks.sources import Concern


@runtime_checkable
class Frame(Protocol):
    """A table with named columns, as pandas has it."""

    @property
    def columns(self) -> Any: ...

    @property
    def dtypes(self) -> Any: ...

    def to_numpy(self, dtype: Any = None, na_value: Any = None) -> Any: ...


@runtime_checkable
class Series(Protocol):
    """A column."""

    @property
    def dtype(self) -> Any: ...

    @property
    def name(self) -> Any: ...

    def to_numpy(self, dtype: Any = None, na_value: Any = None) -> Any: ...


def is_array(item: object) -> bool:
    """Whether this can be cast to a tensor."""
    return isinstance(item, np.ndarray | Frame | Series) and not isinstance(item, type)


def cast(
    name: str,
    items: Sequence[Any],
    labels: Sequence[str],
    target: str = "",
    takes: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[Tensor, ...], tuple[Concern, ...]]:
    """Tensors of arrays, frames, or tensors that stay as they are; and a note on what became what.

    float64 and float16 become float32, the dtype of networks. Whole numbers become int64, the dtype of classes and of
    words; bytes, such as those of images, do so in the target only. `takes` says of an item that the loss takes
    "classes", so that whole numbers of any dtype become int64, or "numbers", so that they become float32.

    >>> cast("train", [np.zeros((2, 3)), np.ones(2, dtype=np.uint8)], ["x", "y"], target="y")[0][1].dtype
    torch.int64
    """
    found, changes = list[Tensor](), list[str]()
    for item, label in zip(items, labels, strict=True):
        if isinstance(item, Tensor):
            found.append(item)
            continue
        array = _numbers(f"{name}[{label}]", item)
        wanted = _for_loss(array, takes.get(label, "")) or _wanted(array.dtype, target=label == target)
        if wanted != array.dtype:
            changes.append(f"{name}[{label}] from {array.dtype} to {wanted}")
        found.append(torch.from_numpy(np.ascontiguousarray(array.astype(wanted))))
    if not changes:
        return tuple(found), ()
    return tuple(found), (
        ("cast", f"Arrays were cast: {', '.join(changes)}. Cast them yourself to have another dtype."),
    )


def _for_loss(array: np.ndarray[Any, Any], takes: str) -> np.dtype[Any] | None:
    """The dtype of a target that a loss of torch's would refuse otherwise; None where it takes what it gets."""
    kind = array.dtype.kind
    whole = kind == "f" and array.ndim == 1 and bool((np.isfinite(array) & (array == np.rint(array))).all())
    if takes == "classes" and (kind == "b" or whole):
        return np.dtype(np.int64)
    return np.dtype(np.float32) if takes == "numbers" and kind in "biu" else None


def _wanted(dtype: np.dtype[Any], *, target: bool) -> np.dtype[Any]:
    if dtype.kind == "f":
        return np.dtype(np.float32)
    if dtype.kind in "iu" and (target or dtype.itemsize > 1):
        return np.dtype(np.int64)
    return dtype


def _numbers(where: str, item: Any) -> np.ndarray[Any, Any]:
    """The numbers of an array or a frame; text is refused by name."""
    array = _of_frame(where, item) if isinstance(item, Frame | Series) and not isinstance(item, np.ndarray) else item
    if array.dtype.kind not in "biuf":
        raise TaskError(
            f"{where} has the dtype {array.dtype}, which a network cannot compute with. Give numbers; encode text and "
            f"categories first."
        )
    return np.asarray(array)


def _of_frame(where: str, item: Frame | Series) -> np.ndarray[Any, Any]:
    dtypes = list(item.dtypes) if isinstance(item, Frame) else [item.dtype]
    names = list(item.columns) if isinstance(item, Frame) else [item.name]
    kinds = [getattr(dtype, "kind", "O") for dtype in dtypes]
    bad = [(name, dtype) for name, dtype, kind in zip(names, dtypes, kinds, strict=True) if kind not in "biuf"]
    if bad:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in bad[:5])
        raise TaskError(
            f"{where} has columns that are not numbers: {listed}. Encode them as numbers, or leave them out."
        )
    if "f" in kinds or len(set(kinds)) > 1:
        return np.asarray(item.to_numpy(dtype="float64", na_value=np.nan))
    return np.asarray(item.to_numpy())
