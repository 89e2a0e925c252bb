"""A device for tests, "counted:0": its tensors are really on the CPU, but torch takes them for those of a GPU.

Every operation on them passes through `_run`. It counts what would make the host wait for a GPU, and refuses what a GPU
would refuse, such as adding a tensor of the CPU. Values are those of the CPU, so results can be compared bit by bit.
torch keeps one such device for a whole process: import this in a process of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "counted"
DEVICE = f"{NAME}:0"
COUNTS = Counter[str]()

aten = torch.ops.aten
READS = {aten._local_scalar_dense.default}
"""A number that Python gets: `.item()`, `float()`, `bool()`, `.tolist()`."""
SIZED_BY_VALUES = {
    *(aten.nonzero.default, aten.masked_select.default, aten._unique2.default, aten.unique_dim.default),
    *(aten.repeat_interleave.Tensor, aten.unique_consecutive.default),
}
"""Operations whose result has a shape that only its values tell."""
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}
VIEWS_AND_NAMES = {
    "detach",
    "alias",
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "select",
    "slice",
    "expand",
    "unsqueeze",
}

_setup_privateuseone_for_python_backend(NAME)


class OnDevice(Tensor):
    """A tensor of the device; `inner` has its values."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(DEVICE),
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))


@contextmanager
def counted_device() -> Iterator[Counter[str]]:
    """Where the device can be used. Gives the counts, which begin anew."""
    COUNTS.clear()
    with _Making():
        yield COUNTS


class _Making(TorchFunctionMode):
    """What a dispatch mode does not see: `torch.tensor(…, device=…)` fills a tensor on the CPU and copies it, `tolist`
    copies one to the CPU and reads it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and _is_here(given.get("device")):
            there = given.pop("device")
            return func(*args, **given).to(there)
        if func is Tensor.tolist and isinstance(args[0], OnDevice):
            return args[0].cpu().tolist()
        return func(*args, **given)


def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> OnDevice:
    return OnDevice(torch.empty(size, dtype=dtype))


def _empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any
) -> OnDevice:
    return OnDevice(torch.empty_strided(size, stride, dtype=dtype))


_kernels = torch.library.Library("aten", "IMPL")
_kernels.impl("empty.memory_format", _empty, "PrivateUse1")
_kernels.impl("empty_strided", _empty_strided, "PrivateUse1")


def _is_here(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Do an operation on the values, and count it."""
    tensors = list[Tensor]()

    def plain(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor.inner if isinstance(tensor, OnDevice) else tensor

    made_here = _is_here(kwargs.get("device"))
    plain_args = _mapped(plain, args)
    plain_kwargs = {name: _mapped(plain, value) for name, value in kwargs.items()}
    if plain_kwargs.get("device") is not None:
        plain_kwargs["device"] = torch.device("cpu")
    out = func(*plain_args, **plain_kwargs)
    if func is aten._to_copy.default and kwargs.get("device") is not None:
        _count_copy(source=args[0], to_device=made_here, waits=not kwargs.get("non_blocking"))
        return OnDevice(out) if made_here else out
    if func is aten.copy_.default:
        waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        _count_copy(source=args[1], to_device=isinstance(args[0], OnDevice), waits=waits)
        return args[0]
    _count(func, tensors)
    return return_and_correct_aliasing(func, args, kwargs, _mapped(OnDevice, out))


def _mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """What `tree_map_only` does, for what operations take and give: tensors, and lists of them."""
    if isinstance(value, Tensor):
        return function(value)
    return type(value)(_mapped(function, each) for each in value) if type(value) in (list, tuple) else value


def _count_copy(source: Tensor, *, to_device: bool, waits: bool) -> None:
    if isinstance(source, OnDevice) == to_device:
        COUNTS["kernels"] += 1
    else:
        COUNTS[f"copies to the {'device' if to_device else 'host'}"] += 1
        COUNTS["waits"] += waits or not to_device


def _count(func: Callable[..., Any], tensors: Sequence[Tensor]) -> None:
    name = func._schema.name.removeprefix("aten::")
    mixed = [tensor for tensor in tensors if not isinstance(tensor, OnDevice) and tensor.dim()]
    masks = [tensor for tensor in tensors if tensor.dtype in (torch.bool, torch.uint8)]
    if func in READS:
        COUNTS["numbers read"] += 1
        COUNTS["waits"] += 1
    elif func in SIZED_BY_VALUES or (func in INDEXING and masks):
        COUNTS["shapes read"] += 1
        COUNTS["waits"] += 1
    elif func in INDEXING and mixed:
        COUNTS["copies to the device"] += len(mixed)
        COUNTS["waits"] += len(mixed)
    elif mixed:
        raise RuntimeError(f"{name}: expected all tensors to be on {DEVICE}, but {len(mixed)} are on the CPU.")
    COUNTS["kernels"] += name not in VIEWS_AND_NAMES
