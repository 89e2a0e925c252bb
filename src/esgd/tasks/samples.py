"""A bounded look at a split: some samples, evenly spaced, the same ones each time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from esgd.errors import TaskError
from esgd.tasks.batch_forms import BatchForm
from esgd.tasks.datasets import Mapped
from esgd.tasks.sources import Source, Tensors

NUMBERS = 4_000_000  # of a split of tensors that are looked at
FEWEST = 256  # samples of a split of tensors, however large one of them is
READ = 128  # samples of a dataset: each has to be read, and perhaps decoded


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples of a split: inputs and targets, stacked; what is no tensor is None. `indices` are their places, and
    `counted` is how many samples such a batch counts as."""

    name: str
    inputs: tuple[Tensor | None, ...]
    target: Tensor | None
    indices: Tensor
    total: int
    counted: int

    @property
    def whole(self) -> bool:
        """Whether these are all."""
        return len(self.indices) == self.total

    @property
    def scope(self) -> str:
        """How much was looked at, for a sentence."""
        return (
            f"its {self.total:,} samples"
            if self.whole
            else f"the {len(self.indices):,} of its {self.total:,} samples that were looked at"
        )


def some_samples(name: str, split: Source | None, form: BatchForm) -> Samples | None:
    """Some samples of tensors or of a dataset; None for anything else, which can only be read as training reads it.

    A dataset is read under fixed seeds, so no random number of anybody is used up.
    """
    if isinstance(split, Tensors):
        each = sum(tensor[0].numel() for tensor in split.tensors)
        chosen = evenly_spaced(split.samples, max(FEWEST, NUMBERS // max(each, 1)))
    elif isinstance(split, Mapped):
        chosen = evenly_spaced(split.samples, READ)
    else:
        return None
    return read_samples(name, split, chosen, form)


def read_samples(name: str, split: Tensors | Mapped, chosen: Tensor, form: BatchForm) -> Samples | None:
    """The samples at these places; None where a batch has no inputs and target to tell apart, or no known length."""
    few = split if len(chosen) == split.samples and isinstance(split, Tensors) else split.some(chosen)
    ((_, batch),) = few.parts(len(chosen))
    try:
        items, counted = [*form.inputs(batch), form.target(batch)], form.size(batch)
    except TaskError:
        return None  # a loss of (model, batch) needs no target, and another one refuses such a batch in its own words
    *inputs, target = (item.detach().cpu() if isinstance(item, Tensor) else None for item in items)
    return Samples(name, tuple(inputs), target, chosen, split.samples, counted)


def evenly_spaced(total: int, most: int) -> Tensor:
    """At most `most` places from 0 to total − 1.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    chosen = min(total, most)
    return torch.arange(chosen) * total // chosen
