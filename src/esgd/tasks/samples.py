"""A bounded look at a split: some samples, evenly spaced, the same ones each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from esgd.tasks.sources import Mapped, Source, Tensors

NUMBERS = 4_000_000  # of a split of tensors that are looked at
FEWEST = 256  # samples of a split of tensors, however large one of them is
READ = 128  # samples of a dataset: each has to be read, and perhaps decoded


@dataclass(frozen=True, eq=False)
class Samples:
    """Some samples of a split: inputs and targets, stacked; what is no tensor is None. `indices` are their places."""

    name: str
    inputs: tuple[Tensor | None, ...]
    target: Tensor | None
    indices: Tensor
    total: int

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


def some_samples(name: str, split: Source | None) -> Samples | None:
    """Some samples of tensors or of a dataset; None for anything else, which can only be read as training reads it.

    A dataset is read under fixed seeds, so no random number of anybody is used up.
    """
    if isinstance(split, Tensors):
        each = sum(tensor[0].numel() for tensor in split.tensors)
        chosen = evenly_spaced(split.samples, max(FEWEST, NUMBERS // max(each, 1)))
        items: Any = [
            tensor if len(chosen) == len(tensor) else tensor[chosen.to(tensor.device)] for tensor in split.tensors
        ]
    elif isinstance(split, Mapped):
        chosen = evenly_spaced(split.samples, READ)
        ((_, items),) = Mapped(Subset(split.dataset, chosen.tolist())).parts(len(chosen))  # type: ignore[arg-type]
    else:
        return None
    if not isinstance(items, tuple | list) or len(items) < 2:
        return None  # the task refuses such a batch in its own words
    *inputs, target = (item.detach().cpu() if isinstance(item, Tensor) else None for item in items)
    return Samples(name, tuple(inputs), target, chosen, split.samples)


def evenly_spaced(total: int, most: int) -> Tensor:
    """At most `most` places from 0 to total − 1.

    >>> evenly_spaced(10, 4).tolist(), evenly_spaced(3, 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    chosen = min(total, most)
    return torch.arange(chosen) * total // chosen
