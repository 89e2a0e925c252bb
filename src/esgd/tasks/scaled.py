"""`scaled(task)`: inputs and targets are standardised inside the network, so a deployed network needs nothing else."""

from __future__ import annotations

from copy import copy
from typing import Any

from esgd.errors import TaskError
from esgd.tasks.datasets import Mapped
from esgd.tasks.losses import compares_numbers
from esgd.tasks.objectives import OfOutput
from esgd.tasks.samples import evenly_spaced
from esgd.tasks.sources import Source, Tensors
from esgd.tasks.standardisation import ScaledLoss, ScaledNetworks, Statistics
from esgd.tasks.supervised import Supervised

READ = 10_000  # samples of a dataset that the statistics are taken from


def scaled(task: Supervised, *, targets: bool | None = None) -> Supervised:
    """The same task with a network that standardises its inputs and, in a regression, answers in units of the targets.

    Mean and deviation are those of the training split: per column for inputs (n, d), per channel for images (n, c, h,
    w), one for other shapes. Inputs of whole numbers, such as words, stay as they are. The network holds them as
    buffers, so every saved or exported network has them.

    `targets` says whether the targets are scaled, too; None means: if the loss is one of torch's for regression. Then
    loss and fitness are in units of their deviation, so 1 is what the mean as constant answer has in a squared loss.
    Outputs and metrics are in the units of the targets.

    >>> import torch
    >>> from torch import nn
    >>> x, y = torch.randn(20, 4), 2e5 + 1e5 * torch.randn(20, 1)
    >>> task = scaled(Supervised(lambda: nn.Linear(4, 1), nn.MSELoss(), train=(x, y), fitness=(x, y)))
    >>> bool(task.model()(x).mean() > 1e4)
    True
    """
    if not isinstance(task, Supervised):
        raise TaskError(
            f"scaled() was given a {type(task).__name__}. It knows where inputs and targets are in a Supervised only; "
            f"in a task of your own, standardise them in its network."
        )
    if not isinstance(task._objective, OfOutput):
        raise TaskError(
            "scaled() knows the outputs of a network only where the loss is one of (output, target). With another "
            "loss, standardise inputs and targets in the network or in the data."
        )
    *inputs, target = _columns(task._train)
    chosen = compares_numbers(task._loss) if targets is None else targets
    output = Statistics.of("targets", target) if chosen else None
    if chosen and output is None:
        raise TaskError(
            "the targets of train are no floating-point numbers, so they cannot be scaled. Use targets=False."
        )
    known = tuple(Statistics.of(f"input {number}", x) for number, x in enumerate(inputs))
    result = copy(task)
    vars(result).pop("_constant", None)  # what was computed for the other loss
    result.model = ScaledNetworks(task.model, known, output)
    if output is not None:
        result._objective = OfOutput(ScaledLoss(task._loss, output, f"scaled({task.describe()['loss']})"))
    return result


def _columns(train: Source) -> list[Any]:
    """Inputs and targets of the training split, or of up to 10,000 samples of a dataset, evenly spaced."""
    if isinstance(train, Tensors) and not train.names:
        return list(train.tensors)
    if isinstance(train, Mapped):
        ((_, batch),) = train.some(evenly_spaced(train.samples, READ)).parts(READ + 1)
        if isinstance(batch, tuple | list):
            return list(batch)
    if isinstance(train, Tensors | Mapped):
        raise TaskError(
            "scaled() knows inputs and targets by their places in a batch, and these batches have names. Give train= "
            "as (x, y) or as a Dataset of pairs, or standardise inputs and targets in the network."
        )
    raise TaskError(
        f"scaled() cannot read a {type(train).__name__} without training on it. Give train= as tensors or a Dataset, "
        f"or standardise what your function returns."
    )
