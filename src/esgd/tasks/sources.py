"""Where samples come from: tensors, a map-style dataset, or the user's own batches. One silhouette for all three.

Every source deals out epochs in a random order that `seeds` alone decides, and fixed parts in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from esgd.errors import TaskError
from esgd.protocols import Batch
from esgd.randomness import Seeds, global_randomness


class Source(Protocol):
    """A split of the data."""

    @property
    def samples(self) -> int | None:
        """How many samples there are, where that can be known without reading them."""
        ...

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterable[Batch]:
        """All samples once, in the order that `seeds` decides."""
        ...

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterable[tuple[int, Batch]]:
        """All samples in fixed, numbered batches, visited in `order` where that is possible."""
        ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Tensors:
    """Tensors of equal length, the last one the target. Batches are made by indexing; there is no DataLoader."""

    tensors: tuple[Tensor, ...]

    @property
    def samples(self) -> int:
        return len(self.tensors[0])

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        order = torch.randperm(self.samples, generator=seeds("order")).to(self.tensors[0].device)
        for chosen in batches_of(order, batch_size):
            yield tuple(tensor[chosen] for tensor in self.tensors)

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        pieces = batches_of(torch.arange(self.samples), batch_size)
        for part in order if order is not None else range(len(pieces)):
            first, last = int(pieces[part][0]), int(pieces[part][-1])
            yield part, tuple(tensor[first : last + 1] for tensor in self.tensors)

    def describe(self) -> dict[str, Any]:
        digest = sha256()
        for tensor in self.tensors:
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        shapes = [list(tensor.shape) for tensor in self.tensors]
        return {"kind": "tensors", "samples": self.samples, "shapes": shapes, "sha256": digest.hexdigest()}


@dataclass(frozen=True, eq=False)
class Mapped:
    """A map-style `Dataset`, read through a DataLoader.

    Each sample is loaded under a seed of its own, so random augmentation depends on the address (epoch, individual,
    sample) and not on how many `workers` there are.
    """

    dataset: MapStyle
    workers: int = 0

    @property
    def samples(self) -> int:
        return len(self.dataset)

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        order = torch.randperm(self.samples, generator=seeds("order"))
        return iter(self._loader(batches_of(order, batch_size), seeds))

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        pieces = batches_of(torch.arange(self.samples), batch_size)
        visited = list(order) if order is not None else list(range(len(pieces)))
        return zip(visited, self._loader([pieces[part] for part in visited], Seeds(0, ("fixed",))), strict=True)

    def _loader(self, batches: Sequence[Tensor], seeds: Seeds) -> DataLoader[Any]:
        addressed = [[(int(i), seeds.integer("sample", int(i))) for i in batch] for batch in batches]
        return DataLoader(
            _Addressed(self.dataset), batch_sampler=addressed, num_workers=self.workers, generator=seeds()
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": type(self.dataset).__name__, "samples": self.samples}


class _Addressed(Dataset[Any]):
    """A dataset whose index brings the seed for the global generators along."""

    def __init__(self, dataset: MapStyle) -> None:
        self.dataset = dataset

    def __getitem__(self, address: tuple[int, int]) -> Any:
        index, seed = address
        with global_randomness(seed):
            return self.dataset[index]


@dataclass(frozen=True, eq=False)
class Stream:
    """The user's own batches: a function without arguments that returns an iterable of them.

    Its fitness cannot be visited in another order. What it shuffles with global generators is addressed all the same,
    because engines train inside `global_randomness`.
    """

    make: Callable[[], Iterable[Batch]]

    @property
    def samples(self) -> None:
        return None

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterable[Batch]:
        return self.make()

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        return iter(enumerate(self.make()))

    def describe(self) -> dict[str, Any]:
        return {"kind": "stream"}


@runtime_checkable
class MapStyle(Protocol):
    """What `torch.utils.data` calls a map-style dataset; a list of samples is one too."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def source(name: str, data: Any, workers: int) -> Source:
    """The source behind what a user passed as `train=`, `fitness=` or `test=`; refuses by name what cannot be one."""
    if type(data) is TensorDataset:  # a subclass may augment in its __getitem__
        data = data.tensors
    if isinstance(data, tuple | list) and data and all(isinstance(item, Tensor) for item in data):
        return _tensors(name, tuple(data))
    if isinstance(data, MapStyle) and not isinstance(data, tuple | Tensor | str):
        if len(data) == 0:
            raise TaskError(f"{name} is an empty {type(data).__name__}. Give it at least one sample.")
        return Mapped(data, workers)
    if callable(data) and not isinstance(data, type):
        return Stream(data)
    hint = "; a DataLoader goes in as a function: lambda: loader" if isinstance(data, DataLoader) else ""
    raise TaskError(
        f"{name} is {_kind(data)}, which is not data we can read. Give (x, y) as torch tensors, a map-style Dataset, "
        f"or a function without arguments that returns an iterable of batches{hint}."
    )


def _tensors(name: str, tensors: tuple[Tensor, ...]) -> Tensors:
    lengths = [len(tensor) if tensor.dim() else 0 for tensor in tensors]
    if len(tensors) < 2:
        raise TaskError(f"{name} holds one tensor of shape {tuple(tensors[0].shape)}. Give inputs and targets: (x, y).")
    if min(lengths) == 0:
        raise TaskError(f"{name} is empty: its tensors have {lengths} samples. Give it at least one sample.")
    if len(set(lengths)) > 1:
        raise TaskError(f"{name} has tensors of {lengths} samples. Inputs and targets must have the same length.")
    for number, tensor in enumerate(tensors):
        bad = ~torch.isfinite(tensor) if tensor.dtype.is_floating_point else torch.zeros(1, dtype=torch.bool)
        if bad.any():
            rows = bad.reshape(len(tensor), -1).any(dim=1)
            raise TaskError(
                f"{name}[{number}] has NaN or inf in {int(rows.sum())} of {len(tensor)} samples, the first at index "
                f"{int(rows.nonzero()[0])}. Every loss they touch becomes NaN, and every individual diverges. Remove "
                f"or fill them; a model that really takes NaN can be given a Dataset instead of tensors."
            )
    return Tensors(tensors)


def batches_of(order: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Split an order into batches; a remainder of one sample joins the batch before it.

    A batch of one has no variance, and BatchNorm refuses it in training.

    >>> [len(batch) for batch in batches_of(torch.arange(7), 3)]
    [3, 4]
    """
    pieces: tuple[Tensor, ...] = order.split(batch_size)
    if len(pieces) > 1 and len(pieces[-1]) == 1 and batch_size > 1:
        return (*pieces[:-2], torch.cat(pieces[-2:]))
    return pieces


def _kind(data: object) -> str:
    if isinstance(data, tuple | list):
        return f"a {type(data).__name__} of {', '.join(type(item).__name__ for item in data) or 'nothing'}"
    return f"a {type(data).__name__}"
