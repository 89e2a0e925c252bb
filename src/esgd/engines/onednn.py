"""Products of large matrices by oneDNN: torch's BLAS, Intel's MKL, does not use AVX-512 on processors of AMD."""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn import functional as F

LARGE = 4_000_000
"""Floating-point operations of a product from which oneDNN is faster; below that, it takes long to begin."""


def multiply_by_onednn(module: nn.Module) -> None:
    """Let the linear layers of a network multiply by oneDNN. The network is changed, and must be of our own making."""
    for layer in module.modules():
        if type(layer) is nn.Linear and "forward" not in vars(layer):  # others may compute something else
            layer.forward = _Forward(layer)  # type: ignore[method-assign]


class _Forward:
    """What a linear layer computes."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer = layer

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch calls it
        weight, bias = self.layer.weight, self.layer.bias
        if not _is_suited(input, weight):
            return F.linear(input, weight, bias)
        found = _product(input.reshape(-1, weight.shape[1]), weight)
        return (found if bias is None else found + bias).view(*input.shape[:-1], weight.shape[0])


def _is_suited(x: Tensor, weight: Tensor) -> bool:
    return (
        type(x) is Tensor
        and x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and 2 * x.numel() * weight.shape[0] >= LARGE
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
    )


class _Product(torch.autograd.Function):
    """a @ b.T. Its gradients are such products, too, so that they can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Any:
        ctx.save_for_backward(a, b)
        return _multiply(a, b)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_a = _product(slope, b.T) if ctx.needs_input_grad[0] else None
        return of_a, _product(slope.T, a.T) if ctx.needs_input_grad[1] else None


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.T."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return found


def _product(a: Tensor, b: Tensor) -> Tensor:
    found: Tensor = _Product.apply(a, b)  # type: ignore[no-untyped-call]
    return found


@torch.library.custom_op("esgd::products", mutates_args=())
def products(a: Tensor, b: Tensor) -> Tensor:
    """a[i] @ b[i] for every i. An operation of its own, so that the compiler takes it as it is."""
    return torch.stack([_multiply(x, y) for x, y in zip(a, b.mT, strict=True)])


@products.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[2])


def by_onednn(recording: GraphModule) -> GraphModule:
    """A recording whose large products, each of many networks, are multiplied by oneDNN. It is changed in place."""
    for node in recording.graph.nodes:
        if node.target is torch.ops.aten.bmm.default and _is_large(*(each.meta["val"] for each in node.args)):
            node.target = torch.ops.esgd.products.default
    recording.recompile()
    return recording


def _is_large(a: Tensor, b: Tensor) -> bool:
    """Whether the products of each network are."""
    suited = a.dtype == b.dtype == torch.float32 and a.device.type == "cpu"
    return suited and 2 * a.shape[1] * a.shape[2] * b.shape[2] >= LARGE


@cache
def onednn_is_faster() -> bool:
    """Whether this machine is one on which large products in float32 are faster by oneDNN."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available() and _is_of_amd()


def _is_of_amd() -> bool:
    with suppress(OSError):
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    return "AuthenticAMD" in platform.processor()
