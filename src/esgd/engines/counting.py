"""What one SGD step of a task is made of: operations, multiplications, and numbers written. Counted, never timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from esgd.engines.probe import trial
from esgd.engines.sequential import Loop
from esgd.protocols import Setup

OPERATION, FLOP, ELEMENT = 5e-6, 1 / 50e9, 4e-10
"""Seconds of one core for an operation of torch, for a floating-point operation in a product, and for a number that is
written. Measured steps took 0.75 to 3.6 times what these constants give; see decision 26."""


@dataclass(frozen=True)
class StepCount:
    """An SGD step of one individual: calls of torch's operations and their names, floating-point operations in matrix
    products and convolutions, and numbers written."""

    operations: int
    flops: int
    elements: int
    names: frozenset[str] = frozenset()

    @property
    def seconds(self) -> float:
        """Of one core that computes as the constants say: the same number on every machine.

        >>> StepCount(operations=40, flops=1_000_000, elements=50_000).seconds
        0.00024
        """
        return round(self.operations * OPERATION + self.arithmetic, 12)

    @property
    def arithmetic(self) -> float:
        """Its seconds without the time that each operation takes whatever its size: what threads can share."""
        return self.flops * FLOP + self.elements * ELEMENT


def count_step(setup: Setup, engine: Loop) -> StepCount:
    """Count the step that an engine does: an epoch of one batch more, without what it does once. It takes four."""
    with trial(engine, setup, individuals=1, batches=1) as train:
        train(1)  # the first time, data are moved to the device
        once, twice = _counted(train, 1), _counted(train, 2)
    return StepCount(
        operations=twice.operations - once.operations,
        flops=twice.flops - once.flops,
        elements=twice.elements - once.elements,
        names=frozenset(twice.names),
    )


def _counted(train: Callable[[int], float], epochs: int) -> _Counter:
    counter = _Counter()
    with counter:
        train(epochs)
    return counter


class _Counter(TorchDispatchMode):
    """Sees every operation that torch is asked for, also in the backward pass."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.flops, self.elements, self.names = 0, 0, 0, set[str]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler to keep it out of the next method, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        out = func(*args, **given)
        packet = func.overloadpacket
        self.operations += 1
        self.names.add(packet.__name__)
        self.elements += sum(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor))
        if packet in flop_registry:
            self.flops += flop_registry[packet](*args, **given, out_val=out)
        return out
