"""Networks for tables: which one is built, and how a trained one takes rows in the units of the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from math import ceil, log2, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from esgd._validation import is_count
from esgd.errors import TaskError, shown
from esgd.genome import build
from esgd.integrations.tabular import Numbers, Scale
from esgd.randomness import Seeds, global_randomness

NARROWEST, WIDEST = 16, 256  # hidden units of the default network
AT_ONCE = 8192  # rows that a trained network is given at a time


def network_maker(
    module: Any, hidden: Sequence[int] | None, inputs: int, outputs: int, rows: int
) -> Callable[[], nn.Module]:
    """What builds a network: the user's function, which may take the numbers of inputs and outputs, or `mlp`."""
    if module is None:
        return partial(mlp, inputs, outputs, widths(rows) if hidden is None else _checked_widths(hidden))
    if hidden is not None:
        raise TaskError(
            f"hidden={shown(hidden)} is for the default network, but module={shown(module)} was given. Leave one out."
        )
    if isinstance(module, nn.Module) or not callable(module):
        raise TaskError(
            f"module={shown(module)} does not build networks. Each individual of the population needs one of its own. "
            f"Give a function or a class that is called with (n_features, n_outputs), or without arguments."
        )
    signature = inspect.signature(module)
    for sizes in ((inputs, outputs), ()):
        with suppress(TypeError):
            signature.bind(*sizes)
            return partial(module, *sizes) if sizes else module
    raise TaskError(
        f"module={shown(module)} takes the arguments {signature}. It is called with (n_features, n_outputs), or "
        f"without arguments."
    )


def dtype_of(network: nn.Module) -> torch.dtype:
    """In which a network computes: that of its first parameter of real numbers."""
    return next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)


def checked_dtype(
    module: Any, make: Callable[[], nn.Module], inputs: int, outputs: int, *, classes: bool
) -> torch.dtype:
    """The dtype of the networks of the user's `module`. It is refused if they do not return a number for each class or
    target, or if they return probabilities: the softmax is in the loss."""
    network = build(make, Seeds(0)).eval()
    dtype = dtype_of(network)
    with global_randomness(0), torch.no_grad():
        answer = network(torch.tensor([[0.0], [1.0]], dtype=dtype).expand(2, inputs))
    shape = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if shape != (2, outputs):
        wanted = f"There are {outputs} classes" if classes else f"The number of targets is {outputs}"
        raise TaskError(
            f"module={shown(module)} returned the shape {shape} for 2 rows. {wanted}: return (n, {outputs})."
        )
    if classes and bool((answer >= 0).all()) and torch.allclose(answer.sum(dim=1), torch.ones(2, dtype=answer.dtype)):
        raise TaskError(
            f"module={shown(module)} returned probabilities, which are 1 in sum for every row. The loss is the cross "
            f"entropy of logits, which has the softmax inside. Leave nn.Softmax out of the network."
        )
    return dtype


def mlp(inputs: int, outputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them.

    >>> [tuple(p.shape) for p in mlp(4, 3, [16]).parameters()]
    [(16, 4), (16,), (3, 16), (3,)]
    """
    sizes, layers = (inputs, *hidden), list[nn.Module]()
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))


def widths(rows: int) -> tuple[int, int]:
    """The hidden layers of the default network: two, as wide as the power of two nearest to √n, from 16 to 256.

    >>> widths(150), widths(1_000), widths(1_000_000)
    ((16, 16), (32, 32), (256, 256))
    """
    width = min(WIDEST, max(NARROWEST, 1 << round(log2(sqrt(rows)))))
    return width, width


class TableNetwork(nn.Module):
    """A trained network that takes rows in the units of the table, (n, d), and needs nothing else.

    It answers with the probabilities of the classes, (n, k), or with numbers in the units of the targets. Scales are
    buffers in float64; the network computes in its own dtype.
    """

    y_scale: Tensor | None

    def __init__(self, network: nn.Module, x: Scale, y: Scale | None) -> None:
        super().__init__()
        self.network = network.eval()
        self.register_buffer("x_scale", _pair(x))
        self.register_buffer("y_scale", None if y is None else _pair(y))

    def forward(self, rows: Tensor) -> Tensor:
        x_scale: Tensor = self.get_buffer("x_scale")
        inputs = (rows.double() - x_scale[0]) / x_scale[1]
        output: Tensor = self.network(inputs.to(dtype_of(self.network))).double()
        return output.softmax(dim=1) if self.y_scale is None else output * self.y_scale[1] + self.y_scale[0]

    @torch.no_grad()
    def answers(self, x: Numbers) -> Numbers:
        """As `forward`, for arrays, a few thousand rows at a time."""
        device, answers = self.get_buffer("x_scale").device, list[Tensor]()
        for piece in np.array_split(x, ceil(len(x) / AT_ONCE)):
            answers.append(self(torch.tensor(piece, device=device)).cpu())  # a copy: those of pandas are read-only
        return torch.cat(answers).numpy()


def _checked_widths(hidden: Any) -> tuple[int, ...]:
    hidden = np.asarray(hidden).tolist() if _is_numpy(hidden) else hidden
    if not isinstance(hidden, Sequence) or isinstance(hidden, str) or not all(map(is_count, hidden)):
        raise TaskError(
            f"hidden={shown(hidden)} are no widths of hidden layers. Give whole numbers of 1 or more, such as (64, 64)."
        )
    return tuple(hidden)


def _is_numpy(hidden: Any) -> bool:
    """Whether widths are numbers of NumPy, as those of a search often are."""
    return isinstance(hidden, np.ndarray) or (
        isinstance(hidden, list | tuple) and any(isinstance(each, np.integer) for each in hidden)
    )


def _pair(scale: Scale) -> Tensor:
    return torch.as_tensor(np.stack([scale.mean, scale.deviation]))
