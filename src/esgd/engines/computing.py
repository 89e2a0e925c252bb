"""How numbers are computed: device, threads, precision, compilation, layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from esgd._tensors.batches import to_device
from esgd._validation import is_count
from esgd.errors import RecipeError, shown
from esgd.protocols import Batch

MOST = 4096
"""Threads, or processes, of one machine: more are a slip of the pen, and torch would end the process over them."""

Precision = Literal["float32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Computing:
    """Where and how a network is run.

    | field           | meaning                                                                                   |
    |-----------------|-------------------------------------------------------------------------------------------|
    | `device`        | a torch device: "cpu", "cuda", "cuda:1", "mps"                                            |
    | `threads`       | torch's threads while it works; None leaves torch's own choice                            |
    | `precision`     | "float32" computes in the network's own dtype; "bf16" under autocast, losses included     |
    | `compile`       | `torch.compile`: seconds to minutes at the beginning, then faster steps                   |
    | `channels_last` | lay images out channel by channel for every pixel: faster convolutions on most hardware   |
    | `onednn`        | multiply in large linear layers by oneDNN: faster on processors of AMD with AVX-512       |

    All six can change the last bits of a result, so a run that is resumed keeps them.
    """

    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "float32"
    compile: bool = False
    channels_last: bool = False
    onednn: bool = False

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise RecipeError(
                f"precision={self.precision!r} is not known. Use 'float32', the network's own dtype, or 'bf16', "
                f"which runs matrix products in bfloat16 and keeps weights and sums as they are."
            )
        if self.threads is not None and not is_count(self.threads):
            raise RecipeError(f"threads={shown(self.threads)} is not 1 or more. Use None for torch's own choice.")
        if self.threads is not None and self.threads > MOST:
            raise RecipeError(f"threads={self.threads} exceeds {MOST}: no machine has so many cores. Use None.")
        for name in ("compile", "channels_last", "onednn"):
            if not isinstance(getattr(self, name), bool):
                raise RecipeError(f"{name}={getattr(self, name)!r} is neither true nor false.")
        if not isinstance(self.device, str):
            raise RecipeError(f"device={shown(self.device)} is not a name. Write for example 'cpu' or 'cuda:1'.")
        try:
            if torch.empty(0, device=self.device).is_meta:
                raise RuntimeError("tensors on it have no values.")
        except (RuntimeError, AssertionError) as error:
            raise RecipeError(
                f"device={self.device!r} cannot be used here: {str(error).splitlines()[0]} Use device='cpu', or a "
                f"device that this PyTorch build and this machine have."
            ) from error
        if self.onednn and not torch.backends.mkldnn.is_available():
            raise RecipeError("onednn=true: this build of PyTorch is without oneDNN. Leave it out.")
        if self.onednn and (self.precision != "float32" or torch.device(self.device).type != "cpu"):
            raise RecipeError(
                "onednn=true is for products in float32 on the CPU: bf16 and other devices have kernels of their own. "
                "Leave it out, or leave out device and precision."
            )

    def check_precision(self, dtype: torch.dtype) -> None:
        """Refuse a precision that a network of this dtype would not be computed in."""
        if self.precision == "bf16" and dtype == torch.float64:
            raise RecipeError(
                f"precision={self.precision!r} has no effect on this network, whose parameters are float64: autocast "
                f"leaves float64 as it is. Use precision='float32', which computes in the network's own dtype, or "
                f"return the network from make_model in float32."
            )

    def to_device(self, batch: Batch) -> Batch:
        """The batch on this device, in this layout."""
        moved = to_device(batch, torch.device(self.device))
        return pytree.tree_map(_channels_last, moved) if self.channels_last else moved

    def autocast(self) -> AbstractContextManager[Any]:
        """Where losses are computed."""
        if self.precision == "float32":
            return nullcontext()  # a switched-off autocast costs as much as a small layer
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


def _channels_last(item: Any) -> Any:
    is_image = isinstance(item, Tensor) and item.dim() == 4 and item.is_floating_point()
    return item.contiguous(memory_format=torch.channels_last) if is_image else item


@contextmanager
def torch_threads(threads: int | None) -> Iterator[None]:
    """Set torch's threads for a while; the caller's choice comes back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
