"""Datasets that are read sample by sample: map-style ones by index, iterable ones from the beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from math import ceil
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate

from esgd.protocols import Batch
from esgd.randomness import Seeds
from esgd.tasks.fingerprints import fingerprint, size_in_bytes
from esgd.tasks.kept_samples import KeptSamples
from esgd.tasks.orders import Order, Shuffled
from esgd.tasks.reading_processes import Address, AddressedBatches, Collate, MapStyle, Readers, collated, plain
from esgd.tasks.sources import FIXED, Concern, NamedBatches, fixed

KEPT_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Mapped:
    """A map-style `Dataset`, as it is or out of a `DataLoader`.

    Each batch is read under a seed of its own, so random augmentation, and what is random in `collate`, depends on the
    address (individual, epoch, batch) and not on how many `workers` there are. Fixed parts are read once and kept, up
    to a gigabyte of them; so are samples that are the same each time. `options` are those of a `DataLoader` for its
    processes, and `name` is what errors call the split.
    """

    dataset: MapStyle
    workers: int = 0
    _: KW_ONLY
    order: Order | None = None
    collate: Collate = default_collate
    batch_size: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Concern, ...] = ()
    name: str = ""
    _kept: KeptBatches = field(default_factory=lambda: KeptBatches(), repr=False)
    _readers: Readers = field(default_factory=Readers, repr=False)
    _shown: MapStyle | None = field(default=None, repr=False)  # the user's, where `dataset` is made of it

    @property
    def samples(self) -> int:
        return self._order.samples

    @property
    def resizable(self) -> bool:
        return self._order.resizable

    def steps(self, batch_size: int) -> int | None:
        return self._order.steps(batch_size)

    def lengths(self, batch_size: int) -> list[int] | None:
        return self._order.lengths(batch_size) if self.collate is default_collate else None

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        batches = self._order.epoch(seeds, batch_size)
        return self._read([(seeds.integer("batch", n), indices, True) for n, indices in enumerate(batches)])

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        pieces, kept = self._order.parts(batch_size), self._kept.of_size(batch_size)
        visited = range(len(pieces)) if order is None else order
        loaded = self._read([(FIXED.integer(part), pieces[part], False) for part in visited if part not in kept])
        for part in visited:
            if part not in kept:
                batch = next(loaded)
                self._kept.add(batch_size, part, batch)
                yield part, batch
            else:
                yield part, kept[part]

    def describe(self) -> dict[str, Any]:
        """Kind, size, and a fingerprint of a few samples, read under fixed seeds."""
        digest, n, places = sha256(), self.samples, self._places
        chosen = sorted({0, n // 3, n // 2, n - 1})
        addresses = [(FIXED.integer("describe", place), [places[place]], False) for place in chosen]
        for batch in self._read(addresses) if self._prepared else map(self._batches.__getitems__, addresses):
            digest.update(fingerprint(batch))
        return {"kind": type(self.dataset).__name__, "samples": n, "some_sha256": digest.hexdigest()}

    def data(self) -> MapStyle:
        return self.dataset

    def some(self, indices: Tensor) -> Mapped:
        """These samples alone, by their places among all."""
        places = self._places
        chosen = Subset(cast(Dataset[Any], self.dataset), [places[place] for place in indices.tolist()])
        return Mapped(
            chosen,
            self.workers,
            collate=self.collate,
            batch_size=self.batch_size,
            options=self.options,
            notes=tuple((kind, text) for kind, text in self.notes if kind != "sampler"),  # the parts have no sampler
            name=self.name,
            _shown=self._of_user,
        )

    @property
    def _of_user(self) -> MapStyle:
        return self.dataset if self._shown is None else self._shown

    @cached_property
    def _order(self) -> Order:
        return self.order or Shuffled(torch.arange(len(self.dataset)))

    @property
    def _places(self) -> list[int]:
        """The indices of all samples, in the order of the parts."""
        return [index for part in self._order.parts(max(1, self.samples)) for index in part]

    @cached_property
    def _batches(self) -> AddressedBatches:
        lends = self.collate is default_collate  # it copies
        return AddressedBatches(
            self.dataset,
            self.collate,
            KeptSamples(self.samples, processes=max(1, self.workers), lends=lends),
            self._of_user,
            self.name,
        )

    @property
    def _prepared(self) -> bool:
        """Whether processes prepare the dataset, which then cannot be read in this one."""
        return bool(self.workers) and self.options.get("worker_init_fn") is not None

    def _read(self, addresses: list[Address]) -> Iterator[Batch]:
        few = len(addresses) < 2 and not self._prepared  # not worth starting processes for
        return self._readers.read(self._batches, addresses, workers=0 if few else self.workers, options=self.options)


class KeptBatches:
    """Fixed parts that have been read, up to a gigabyte of tensors."""

    def __init__(self) -> None:
        self._batches, self._bytes = dict[int, dict[int, Batch]](), 0

    def of_size(self, batch_size: int) -> Mapping[int, Batch]:
        """Those of one way to cut the samples, by number."""
        return self._batches.setdefault(batch_size, {})

    def add(self, batch_size: int, part: int, batch: Batch) -> None:
        """Keep one more, if there is room."""
        more = size_in_bytes(batch)
        if self._bytes + more <= KEPT_BYTES:
            self._batches.setdefault(batch_size, {})[part] = batch
            self._bytes += more


@dataclass(frozen=True, eq=False)
class Iterated:
    """An iterable dataset: samples come in the order that it has itself, and are cut into batches.

    What it draws from global generators is addressed. Its processes are started anew for each epoch: the generators of
    processes that stay alive would continue where the last epoch ended, and a resumed run would differ.
    """

    dataset: IterableDataset[Any]
    workers: int = 0
    _: KW_ONLY
    collate: Collate = default_collate
    batch_size: int | None = None
    drop_last: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Concern, ...] = ()
    name: str = ""

    resizable = True

    @property
    def samples(self) -> None:
        return None

    def steps(self, batch_size: int) -> int | None:
        if not isinstance(self.dataset, Sized):
            return None
        samples = len(self.dataset)
        return samples // batch_size if self.drop_last else ceil(samples / batch_size)

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        return iter(NamedBatches(partial(self._loader, batch_size), self.name))

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        return fixed(partial(self._loader, self.batch_size or batch_size), self.name)

    def describe(self) -> dict[str, Any]:
        return {"kind": type(self.dataset).__name__}

    def data(self) -> None:
        """Nothing that is known: an iterator may change what it iterates over."""

    def _loader(self, batch_size: int) -> Iterable[Batch]:
        return DataLoader(
            self.dataset,
            batch_size=batch_size,
            collate_fn=partial(_collated, collate=self.collate),
            num_workers=self.workers,
            drop_last=self.drop_last,
            **self.options,
        )


def _collated(samples: list[Any], collate: Collate) -> Batch:
    return plain(collated(samples, collate))
