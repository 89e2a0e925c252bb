"""Where samples come from, in one form for all: tensors, and the user's own batches. Datasets are in `datasets.py`.

Every source deals out epochs in a random order that `seeds` alone decides, and fixed parts in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from esgd._limits import shortage
from esgd._tensors.batches import to_device
from esgd.errors import EsgdError, TaskError
from esgd.protocols import Batch
from esgd.randomness import Seeds, global_randomness
from esgd.tasks.fingerprints import fingerprint

FIXED = Seeds(0, ("fixed",))
"""Where the seeds of fixed parts come from: the same for every run, because a fitness is a fixed function."""

Concern = tuple[str, str]
"""The kind of a note, and its text: what was seen, what it means, what to do."""


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


@runtime_checkable
class CutsItself(Protocol):
    """A source that knows how its samples are cut into batches, such as one that was made of a `DataLoader`."""

    @property
    def batch_size(self) -> int | None:
        """The size that it came with, also for its parts; None if it came without."""
        ...

    @property
    def resizable(self) -> bool:
        """Whether an epoch can be cut into batches of another size."""
        ...

    def steps(self, batch_size: int) -> int | None:
        """How many batches an epoch has, if that can be known."""
        ...


@runtime_checkable
class KnowsLengths(Protocol):
    """A source that knows how long its batches are without reading them."""

    def lengths(self, batch_size: int) -> list[int] | None:
        """How many samples each batch of an epoch has, if that can be known."""
        ...


@runtime_checkable
class HasNotes(Protocol):
    """A source of which something is said before training: how it is read, and what that means."""

    @property
    def notes(self) -> Sequence[Concern]: ...


@dataclass(frozen=True, eq=False)
class Tensors:
    """Tensors of equal length, the last one the target. Batches are made by indexing; there is no DataLoader.

    With `names`, a batch is a dict.
    """

    tensors: tuple[Tensor, ...]
    names: tuple[str, ...] = ()
    notes: tuple[Concern, ...] = ()

    @property
    def samples(self) -> int:
        return len(self.tensors[0])

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        order = to_device(torch.randperm(self.samples, generator=seeds("order")), self.tensors[0].device)
        for chosen in batches_of(order, batch_size):
            yield self._batch(tensor.index_select(0, chosen) for tensor in self.tensors)

    def epochs(self, seeds: Sequence[Seeds], batch_size: int) -> Iterator[Batch]:
        """The epochs of several individuals at once: each batch is theirs, stacked."""
        orders = torch.stack([torch.randperm(self.samples, generator=each("order")) for each in seeds], dim=1)
        for chosen in batches_of(to_device(orders, self.tensors[0].device), batch_size):  # (batch, n)
            picked = chosen.T.reshape(-1)
            yield self._batch(
                tensor.index_select(0, picked).view(len(seeds), len(chosen), *tensor.shape[1:])
                for tensor in self.tensors
            )

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        pieces = batches_of(torch.arange(self.samples), batch_size)
        for part in order if order is not None else range(len(pieces)):
            first, last = int(pieces[part][0]), int(pieces[part][-1])
            yield part, self._batch(tensor[first : last + 1] for tensor in self.tensors)

    def describe(self) -> dict[str, Any]:
        digest = sha256()
        for tensor in self.tensors:
            digest.update(fingerprint(tensor))
        shapes = [list(tensor.shape) for tensor in self.tensors]
        names = {"names": list(self.names)} if self.names else {}
        return {"kind": "tensors", "samples": self.samples, "shapes": shapes, **names, "sha256": digest.hexdigest()}

    def data(self) -> tuple[Tensor, ...]:
        return self.tensors

    def on_device(self, device: torch.device) -> Tensors:
        """The same samples on a device."""
        return Tensors(tuple(tensor.to(device) for tensor in self.tensors), self.names, self.notes)

    def some(self, indices: Tensor) -> Tensors:
        """These samples alone."""
        return Tensors(tuple(tensor[indices.to(tensor.device)] for tensor in self.tensors), self.names, self.notes)

    def _batch(self, items: Iterable[Tensor]) -> Batch:
        return dict(zip(self.names, items, strict=True)) if self.names else tuple(items)


@dataclass(frozen=True, eq=False)
class Stream:
    """The user's own batches: a function without arguments that returns an iterable of them.

    Its fitness cannot be visited in another order. What it shuffles with global generators is addressed all the same:
    engines train inside `global_randomness`, and fixed parts are always read under the same seeds.
    """

    make: Callable[[], Iterable[Batch]]
    kind: str = "stream"
    notes: tuple[Concern, ...] = ()
    name: str = ""

    batch_size = None
    resizable = False

    @property
    def samples(self) -> None:
        return None

    def steps(self, batch_size: int) -> None:
        """Not known before it is read."""

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterable[Batch]:
        return NamedBatches(self.make, self.name)

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        return fixed(self.make, self.name)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def data(self) -> None:
        """Nothing that is known: a function may use anything beside its data."""


@dataclass(frozen=True, eq=False)
class NamedBatches:
    """Batches in the order in which they come. What they raise names the split."""

    make: Callable[[], Iterable[Batch]]
    name: str

    def __iter__(self) -> Iterator[Batch]:
        with _reading(self.name, 0):
            batches = iter(self.make())
        return self._rest(batches)

    def _rest(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        end = object()
        for number in count():
            with _reading(self.name, number):
                batch = next(batches, end)
            if batch is end:
                return
            yield batch


def fixed(make: Callable[[], Iterable[Batch]], name: str) -> Iterator[tuple[int, Batch]]:
    """Numbered batches, each read under seeds that are always the same. What they raise names the split."""
    end = object()
    with global_randomness(FIXED.integer("stream")), _reading(name, 0):
        batches = iter(make())
    for part in count():
        with global_randomness(FIXED.integer("stream", part)), _reading(name, part):
            batch = next(batches, end)
        if batch is end:
            return
        yield part, batch


@contextmanager
def _reading(name: str, number: int) -> Iterator[None]:
    try:
        yield
    except EsgdError:
        raise
    except Exception as error:
        if shortage(error):
            raise  # the engine says which
        raise TaskError(
            f"{name or 'a split'} cannot be read at its batch {number}: {type(error).__name__}: {error}. What makes "
            f"its batches raised this, and they are read again and again. Read them by hand to see why."
        ) from error


def batches_of(order: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Split an order into batches; a remainder of one sample joins the batch before it.

    A batch of one has no variance, and BatchNorm refuses it in training.

    >>> [len(batch) for batch in batches_of(torch.arange(7), 3)]
    [3, 4]
    """
    pieces: tuple[Tensor, ...] = order.split(cut_lengths(len(order), batch_size))
    return pieces


def cut_lengths(samples: int, batch_size: int) -> list[int]:
    """How many samples each of the batches has that `batches_of` makes of so many.

    >>> cut_lengths(7, 3), cut_lengths(8, 3), cut_lengths(1, 3)
    ([3, 4], [3, 3, 2], [1])
    """
    whole, rest = divmod(samples, batch_size)
    if rest == 1 and whole and batch_size > 1:
        return [*[batch_size] * (whole - 1), batch_size + 1]
    return [*[batch_size] * whole, *([rest] if rest or not whole else [])]
