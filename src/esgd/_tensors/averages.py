"""Running averages of iterates: weights on the way of an SGD step, averaged on their own device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

import torch
from torch import Tensor

from esgd.errors import TaskError


@dataclass
class IterateAverage:
    """The mean of every `every`-th iterate, or with `memory` an exponential one that forgets over so many epochs.

    While it has seen fewer iterates than it remembers, an exponential average is the plain mean of them.

    >>> mean = IterateAverage(every=2)
    >>> for value in (1.0, 2.0, 3.0, 4.0):
    ...     mean.take([torch.tensor(value)], epochs=0.1)
    >>> mean.tensors
    [tensor(3.)]
    """

    every: int = 1
    memory: float | None = None
    tensors: list[Tensor] = field(default_factory=list)
    _seen: int = 0

    @torch.no_grad()
    def take(self, iterate: Sequence[Tensor], *, epochs: float) -> None:
        """Another step of SGD, which is this part of an epoch (0: not known how large a part), has led here."""
        if self.memory is not None and not epochs:
            raise TaskError(
                "an exponential average forgets over epochs, and this task does not know how many batches an epoch "
                "has. Use ema=None, or data of a known length: tensors or a Dataset."
            )
        self._seen += 1
        if self._seen % self.every:
            return
        count = self._seen // self.every
        if count == 1:
            self.tensors = [tensor.detach().clone() for tensor in iterate]
            return
        weight = 1.0 / count
        if self.memory is not None:
            weight = max(weight, 1.0 - exp(-self.every * epochs / self.memory))
        for mean, tensor in zip(self.tensors, iterate, strict=True):
            mean.lerp_(tensor.detach(), weight)
