"""Means and deviations of data, and the network and loss that carry them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from esgd.errors import TaskError

ROUNDING = 1e-7
"""A deviation below this, relative to the mean, is rounding: the feature never changes."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Mean and deviation, shaped so that they fit a batch."""

    mean: Tensor
    deviation: Tensor

    @staticmethod
    def of(name: str, x: Any) -> Statistics | None:
        """Of (n, …): per column of (n, d), per channel of images (n, c, …), one for other shapes.

        None for what has no floating-point numbers. A feature that never changes has deviation 1.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return None
        if not torch.isfinite(x).all():
            raise TaskError(f"{name} of train has NaN or inf, so it has no mean. Remove or fill such samples.")
        over = [0, *range(2, x.dim())] if x.dim() in (2, 4, 5) else list(range(x.dim()))
        mean = x.mean(dim=over, keepdim=True)[0]
        deviation = x.std(dim=over, correction=0, keepdim=True)[0]
        return Statistics(mean, torch.where(deviation > ROUNDING * mean.abs(), deviation, 1.0))

    def on_device(self, device: torch.device) -> Statistics:
        """The same numbers on a device."""
        return Statistics(self.mean.to(device), self.deviation.to(device))

    def standardised(self, values: Tensor) -> Tensor:
        """In units of the deviation, from the mean."""
        return (values - self.mean.to(values)) / self.deviation.to(values)


class ScaledLoss:
    """A loss of output and target, both in units of the targets' deviation."""

    def __init__(self, loss: Callable[[Any, Any], Tensor], statistics: Statistics, name: str) -> None:
        self.loss, self.statistics, self.__qualname__ = loss, statistics, name

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.statistics.standardised(output), self.statistics.standardised(target))


class ScaledNetwork(nn.Module):
    """A network with the scales of its data around it: it answers in the units of the targets.

    The scales are buffers: they are neither trained nor mutated, and every saved or exported network has them.
    """

    output: Tensor | None

    def __init__(self, network: nn.Module, inputs: Sequence[Statistics | None], output: Statistics | None) -> None:
        super().__init__()
        self.network = network
        self.inputs = nn.Module()
        for n, each in enumerate(inputs):
            self.inputs.register_buffer(str(n), _pair(each))
        self.register_buffer("output", _pair(output))

    def forward(self, *inputs: Any) -> Any:
        known = dict(self.inputs.named_buffers())
        output = self.network(*(_standardised(x, known.get(str(n))) for n, x in enumerate(inputs)))
        return output if self.output is None else output * self.output[1] + self.output[0]


@dataclass(frozen=True, eq=False)
class ScaledNetworks:
    """Builds a network and puts the scales around it."""

    make: Callable[[], nn.Module]
    inputs: tuple[Statistics | None, ...]
    output: Statistics | None

    def __call__(self) -> nn.Module:
        return ScaledNetwork(self.make(), self.inputs, self.output)


def _standardised(x: Any, scale: Tensor | None) -> Any:
    return x if scale is None else (x - scale[0]) / scale[1]


def _pair(statistics: Statistics | None) -> Tensor | None:
    """Mean and deviation as one tensor."""
    return None if statistics is None else torch.stack([statistics.mean, statistics.deviation])
