"""Where samples come from: tensors, a map-style dataset, the user's own batches, or a source of the user's own. One
silhouette for all of them.

Every source deals out epochs in a random order that `seeds` alone decides, and fixed parts in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from esgd._batches import to_device
from esgd.errors import TaskError
from esgd.protocols import Batch
from esgd.randomness import Seeds, global_randomness

FIXED = Seeds(0, ("fixed",))
"""Where the seeds of fixed parts come from: the same for every run, because a fitness is a fixed function."""

KEPT_BYTES = 1 << 30


@runtime_checkable
class Source(Protocol):
    """A split of the data: what `Supervised` makes of tensors, a dataset or a function, and takes as it is.

    Write one where samples are prepared batch by batch: normalised, augmented, cut out of something larger. Everything
    random in an epoch comes from `seeds`; parts are fixed, because a fitness is a fixed function of the network.
    """

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

    def describe(self) -> dict[str, Any]:
        """What distinguishes these samples from others, in plain tables: a run continues only with the same data."""
        ...

    def data(self) -> Any:
        """What holds the samples and nothing that is written into."""
        ...


@runtime_checkable
class StackedSource(Source, Protocol):
    """A source that can deal out several individuals' epochs at once, for engines that train many in one computation.

    Row j of each batch is what `epoch(seeds[j], batch_size)` would deal.
    """

    def epochs(self, seeds: Sequence[Seeds], batch_size: int) -> Iterable[Batch]: ...


@dataclass(frozen=True, eq=False)
class Tensors:
    """Tensors of equal length, the last one the target. Batches are made by indexing; there is no DataLoader."""

    tensors: tuple[Tensor, ...]

    @property
    def samples(self) -> int:
        return len(self.tensors[0])

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        order = to_device(torch.randperm(self.samples, generator=seeds("order")), self.tensors[0].device)
        for chosen in batches_of(order, batch_size):
            yield tuple(tensor.index_select(0, chosen) for tensor in self.tensors)

    def epochs(self, seeds: Sequence[Seeds], batch_size: int) -> Iterator[Batch]:
        """The epochs of several individuals at once: each batch is theirs, stacked."""
        orders = torch.stack([torch.randperm(self.samples, generator=each("order")) for each in seeds], dim=1)
        for chosen in batches_of(to_device(orders, self.tensors[0].device), batch_size):  # (batch, n)
            picked = chosen.T.reshape(-1)
            yield tuple(
                tensor.index_select(0, picked).view(len(seeds), len(chosen), *tensor.shape[1:])
                for tensor in self.tensors
            )

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        pieces = batches_of(torch.arange(self.samples), batch_size)
        for part in order if order is not None else range(len(pieces)):
            first, last = int(pieces[part][0]), int(pieces[part][-1])
            yield part, tuple(tensor[first : last + 1] for tensor in self.tensors)

    def describe(self) -> dict[str, Any]:
        digest = sha256()
        for tensor in self.tensors:
            digest.update(_fingerprint(tensor))
        shapes = [list(tensor.shape) for tensor in self.tensors]
        return {"kind": "tensors", "samples": self.samples, "shapes": shapes, "sha256": digest.hexdigest()}

    def data(self) -> tuple[Tensor, ...]:
        return self.tensors

    def on_device(self, device: torch.device) -> Tensors:
        """The same samples on a device."""
        return Tensors(tuple(tensor.to(device) for tensor in self.tensors))

    def some(self, indices: Tensor) -> Tensors:
        """These samples alone."""
        return Tensors(tuple(tensor[indices.to(tensor.device)] for tensor in self.tensors))


@dataclass(frozen=True, eq=False)
class Mapped:
    """A map-style `Dataset`, read through a DataLoader.

    Each batch is loaded under a seed of its own, so random augmentation depends on the address (individual, epoch,
    batch) and not on how many `workers` there are. Fixed parts are read once and kept, up to a gigabyte of them.
    """

    dataset: MapStyle
    workers: int = 0
    kept: dict[tuple[int, int], Batch] = field(default_factory=dict, repr=False)

    @property
    def samples(self) -> int:
        return len(self.dataset)

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        order = torch.randperm(self.samples, generator=seeds("order"))
        addresses = [[seeds.integer("batch", n), *b.tolist()] for n, b in enumerate(batches_of(order, batch_size))]
        return iter(self._loader(addresses))

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        pieces = batches_of(torch.arange(self.samples), batch_size)
        visited = range(len(pieces)) if order is None else order
        missing = [part for part in visited if (batch_size, part) not in self.kept]
        loaded = iter(self._loader([[FIXED.integer(part), *pieces[part].tolist()] for part in missing]))
        for part in visited:
            if (batch_size, part) in self.kept:
                yield part, self.kept[batch_size, part]
            else:
                batch = next(loaded)
                if sum(map(_bytes, self.kept.values())) + _bytes(batch) <= KEPT_BYTES:
                    self.kept[batch_size, part] = batch
                yield part, batch

    def _loader(self, addresses: list[list[int]]) -> Iterable[Batch]:
        if not addresses:
            return ()
        workers, generator = min(self.workers, len(addresses)), torch.Generator()
        return DataLoader(_Addressed(self.dataset), batch_sampler=addresses, num_workers=workers, generator=generator)

    def describe(self) -> dict[str, Any]:
        """Kind, size, and a fingerprint of a few samples, loaded under fixed seeds."""
        digest, some = sha256(), sorted({0, self.samples // 3, self.samples // 2, self.samples - 1})
        for batch in self._loader([[FIXED.integer("describe", index), index] for index in some]):
            digest.update(_fingerprint(batch))
        return {"kind": type(self.dataset).__name__, "samples": self.samples, "some_sha256": digest.hexdigest()}

    def data(self) -> MapStyle:
        return self.dataset

    def some(self, indices: Tensor) -> Mapped:
        """These samples alone."""
        return Mapped(Subset(cast(Dataset[Any], self.dataset), indices.tolist()), self.workers)


class _Addressed(Dataset[Any]):
    """A dataset that is asked for whole batches: a seed for the global generators, then the indices."""

    def __init__(self, dataset: MapStyle) -> None:
        self.dataset = dataset

    def __getitems__(self, address: Sequence[int]) -> list[Any]:
        seed, *indices = address
        with global_randomness(seed):
            return [self.dataset[index] for index in indices]


@dataclass(frozen=True, eq=False)
class Stream:
    """The user's own batches: a function without arguments that returns an iterable of them.

    Its fitness cannot be visited in another order. What it shuffles with global generators is addressed all the same:
    engines train inside `global_randomness`, and fixed parts are always read under the same seeds.
    """

    make: Callable[[], Iterable[Batch]]

    @property
    def samples(self) -> None:
        return None

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterable[Batch]:
        return self.make()

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        with global_randomness(FIXED.integer("stream")):
            batches = iter(self.make())
        for part in count():
            with global_randomness(FIXED.integer("stream", part)):
                batch = next(batches, self)
            if batch is self:  # the end; a stream never yields itself
                return
            yield part, batch

    def describe(self) -> dict[str, Any]:
        return {"kind": "stream"}

    def data(self) -> None:
        """Nothing that is known: a function may use anything beside its data."""


@runtime_checkable
class MapStyle(Protocol):
    """What `torch.utils.data` calls a map-style dataset; a list of samples is one too."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def source(name: str, data: Any, workers: int) -> Source:
    """The source behind what a user passed as `train=`, `fitness=` or `test=`; refuses by name what cannot be one."""
    if isinstance(data, Source) and not isinstance(data, type):
        return data
    if type(data) is TensorDataset:  # a subclass may augment in its __getitem__
        data = data.tensors
    if isinstance(data, tuple | list) and data and all(isinstance(item, Tensor) for item in data):
        return _tensors(name, tuple(data))
    if isinstance(data, MapStyle) and _holds_samples(data):
        if len(data) == 0:
            raise TaskError(f"{name} is an empty {type(data).__name__}. Give it at least one sample.")
        return Mapped(data, workers)
    if callable(data) and not isinstance(data, type | nn.Module):
        return Stream(data)
    hint = "; a DataLoader goes in as a function: lambda: loader" if isinstance(data, DataLoader) else ""
    raise TaskError(
        f"{name} is {_kind(data)}, which is not data we can read. Give (x, y) as torch tensors, a map-style Dataset, "
        f"a function without arguments that returns an iterable of batches, or a Source of your own{hint}."
    )


def divided(split: Source | None, share: float) -> tuple[Source, Source]:
    """Two splits of one: `share` of its samples, the same ones each time, go into the second."""
    if not isinstance(split, Tensors | Mapped):
        raise TaskError(
            f"pick={share} is a share of the fitness split, and that has to be tensors or a Dataset. Give the data "
            f"themselves as pick=."
        )
    order, second = torch.randperm(split.samples, generator=FIXED("pick")), 0
    if 0 < share < 1:
        second = round(share * split.samples)
    if not 0 < second < split.samples:
        raise TaskError(
            f"pick={share} leaves one of two splits of {split.samples} fitness samples empty. Use a share such as 0.3."
        )
    return split.some(order[second:].sort().values), split.some(order[:second].sort().values)


def _holds_samples(data: MapStyle) -> bool:
    """Whether something with a length and an index is a dataset, and not one of the things that only look like it."""
    if isinstance(data, list):
        return all(isinstance(sample, tuple | list) for sample in data[:1])
    return not isinstance(data, tuple | str | Mapping | Tensor | np.ndarray | nn.Module | IterableDataset)


def _fingerprint(batch: Batch) -> bytes:
    """Bytes that tell one batch from another."""
    if isinstance(batch, Tensor):
        return batch.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(batch, Mapping):
        return b"".join(str(name).encode() + _fingerprint(item) for name, item in sorted(batch.items()))
    if isinstance(batch, tuple | list):
        return b"".join(map(_fingerprint, batch))
    return repr(batch).encode()


def _bytes(batch: Batch) -> int:
    """What a batch takes in memory, as far as its tensors go."""
    if isinstance(batch, Tensor):
        return batch.nbytes
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else ()
    return sum(map(_bytes, parts))


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
