"""Reading batches by their addresses, in this process or in others that stay alive from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any, Protocol, runtime_checkable

from torch.utils.data import DataLoader, Subset, default_collate, get_worker_info

from esgd._limits import shortage
from esgd.errors import EsgdError, TaskError
from esgd.protocols import Batch
from esgd.randomness import Seeds, brief_randomness
from esgd.tasks.kept_samples import KeptSamples
from esgd.tasks.layouts import check_layouts

Address = tuple[int, list[int], bool]
"""A seed for the global generators, the indices of the samples, and whether they are read again and again."""

Collate = Callable[[list[Any]], Any]
"""Makes a batch of samples."""

IDLE = Seeds(0, ("readers",))
"""Seeds the generator of a loader. Nothing depends on it, because every batch brings its own seed."""


@runtime_checkable
class MapStyle(Protocol):
    """What `torch.utils.data` calls a map-style dataset; a list of samples is one too."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@runtime_checkable
class ReadsSeveral(Protocol):
    """A dataset that reads several samples at once faster than one by one."""

    def __getitems__(self, indices: list[int], /) -> list[Any]: ...


@dataclass(frozen=True, eq=False)
class AddressedBatches:
    """A dataset that is asked for whole batches. Samples and what `collate` makes of them are read under the seed.

    `shown` is the dataset that code of the user's finds in `get_worker_info()`, and `name` is what errors call it.
    """

    dataset: MapStyle
    collate: Collate
    kept: KeptSamples
    shown: MapStyle
    name: str = ""

    def __getitems__(self, address: Address) -> Batch:
        seed, indices, often = address
        if often:
            with brief_randomness(seed):
                samples = self.kept.read(indices, self._samples)
                if samples is not None:
                    return plain(collated(samples, self.collate))
        with brief_randomness(seed):
            batch = plain(collated(self._samples(indices), self.collate))
        return batch if often else check_layouts(batch)  # fixed parts are read before training

    def _samples(self, indices: list[int]) -> list[Any]:
        waiting = iter(indices)
        try:
            if isinstance(self.dataset, ReadsSeveral) and self.dataset.__getitems__ is not None:
                return self.dataset.__getitems__(indices)
            return [self.dataset[index] for index in waiting]
        except EsgdError:
            raise
        except Exception as error:
            if shortage(error):
                raise  # the engine says which
            begun = len(indices) - length_hint(waiting)
            where = indices[begun - 1] if begun else self._first_unread(indices)
            raise TaskError(
                f"{self.name or 'a split'} cannot be read{'' if where is None else f' at index {self._place(where)}'}: "
                f"{type(error).__name__}: {error}. Its {type(self.shown).__name__} raised this, and all samples "
                f"are read again and again. Read that sample by hand to see why, then repair it or leave it out."
            ) from error

    def _first_unread(self, indices: list[int]) -> int | None:
        """Of samples that could not be read together, the first that cannot be read alone."""
        for index in indices:
            try:
                self.dataset[index]
            except Exception:  # noqa: BLE001  # the first error is the one to raise
                return index
        return None

    def _place(self, index: int) -> int:
        """Where a sample is in the dataset of the user, of which `dataset` may be some samples."""
        dataset: Any = self.dataset
        while dataset is not self.shown and isinstance(dataset, Subset):
            index, dataset = dataset.indices[index], dataset.dataset
        return index


class Readers:
    """The processes of one dataset. They are started when they are first needed, and asked again for each epoch.

    An epoch that begins while another one is read, as with an engine that trains many networks at once, has processes
    of its own. A copy, also in another process, begins without any.
    """

    def __init__(self) -> None:
        self._free = list[_Loader]()

    def __reduce__(self) -> tuple[Any, ...]:
        return Readers, ()

    def read(
        self, batches: AddressedBatches, addresses: Sequence[Address], *, workers: int, options: Mapping[str, Any]
    ) -> Iterator[Batch]:
        """The batches at these addresses, in this order."""
        if not workers or not addresses:
            for address in addresses:
                yield batches.__getitems__(address)
            return
        loader = self._free.pop() if self._free else _Loader(batches, workers, options)
        try:
            yield from loader.read(addresses)
        except GeneratorExit:
            self._free.append(loader)
            raise
        self._free.append(loader)


class _Loader:
    """A DataLoader whose processes live as long as it does."""

    def __init__(self, batches: AddressedBatches, workers: int, options: Mapping[str, Any]) -> None:
        self._addresses = _Addresses()
        self._loader: DataLoader[Any] = DataLoader(
            batches,  # type: ignore[arg-type]  # which is asked for whole batches
            batch_sampler=self._addresses,  # type: ignore[arg-type]
            num_workers=workers,
            collate_fn=_as_it_is,
            persistent_workers=True,
            generator=IDLE(),
            **{**options, "worker_init_fn": _Beginning(options.get("worker_init_fn"))},
        )

    def read(self, addresses: Sequence[Address]) -> Iterator[Batch]:
        self._addresses.current = addresses
        return iter(self._loader)


@dataclass(frozen=True, eq=False)
class _Beginning:
    """A `worker_init_fn`: `get_worker_info().dataset` is the dataset of the user, as with a plain `DataLoader`."""

    own: Callable[[int], Any] | None

    def __call__(self, worker: int) -> None:
        info: Any = get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.shown)  # it is frozen
        if self.own is not None:
            self.own(worker)


class _Addresses:
    """What a loader reads next."""

    current: Sequence[Address] = ()

    def __iter__(self) -> Iterator[Address]:
        return iter(self.current)

    def __len__(self) -> int:
        return len(self.current)


def plain(batch: Batch) -> Batch:
    """A batch that is a mapping of another kind, such as a `BatchEncoding`, as a dict."""
    return dict(batch) if isinstance(batch, Mapping) and not isinstance(batch, dict) else batch


def collated(samples: list[Any], collate: Collate) -> Any:
    """A batch of these samples; what cannot be stacked is refused with the way out."""
    if collate is not default_collate:
        return collate(samples)
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError) as error:
        raise TaskError(
            f"these samples cannot be stacked into a batch: {str(error).splitlines()[0]}. Give collate_fn= to "
            f"Supervised, or to a DataLoader: a function of a list of samples that returns a batch, for example padded "
            f"to one length."
        ) from error


def _as_it_is(batch: Batch) -> Batch:
    return batch
