"""The physical limit: how fast this machine multiplies matrices, and how many operations a network needs.

    python -m benchmarks.limits      (a child; `speed.py` starts it)

The rate is the best of several products of large square float32 matrices on torch's default threads, which is all
cores, by torch's BLAS and by oneDNN.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.children import Answer, serve
from benchmarks.workloads import Workload

SIDE, PRODUCTS = 2048, 8


class Gemm:
    """A side whose round tells the rate."""

    def open(self) -> None:
        self.a, self.b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)

    def round(self) -> Answer:
        times = []
        for multiply in (torch.mm, by_onednn) * PRODUCTS:
            begun = perf_counter()
            multiply(self.a, self.b)
            times.append(perf_counter() - begun)
        return {"seconds": min(times), "flops": 2 * SIDE**3 / min(times)}


def by_onednn(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.T."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return found


WIDTHS = {
    "W2": (784, 128, 64, 10),
    "W2x100": (784, 128, 64, 10),
    "W3": (360, 1024, 1024, 512, 1000),
}


def operations(workload: Workload) -> float:
    """Floating-point operations of a round: products of the forward and the backward pass, and nothing else.

    Forward, gradient of the weights and gradient of the inputs are one product each; the first layer has no gradient
    of its inputs. Biases, activations, the loss and the update are not counted: they are what keeps training below 1.
    """
    layers = [inputs * outputs for inputs, outputs in pairwise(WIDTHS[workload.name])]
    products = 3 * sum(layers) - layers[0]
    return 2.0 * products * workload.batch * workload.steps * workload.individuals


if __name__ == "__main__":
    serve(Gemm)
