"""A `DataLoader` of the user's, read again so that its order is addressed.

| of the loader                                    | is                                                    |
|--------------------------------------------------|-------------------------------------------------------|
| dataset, `batch_size`, `collate_fn`, `drop_last` | kept; fixed parts have all samples                    |
| `num_workers` and options of processes           | kept; the processes live from epoch to epoch          |
| `shuffle`, `SubsetRandomSampler`                 | shuffled by seeds of the run                          |
| no `shuffle`                                     | kept, with a note: every epoch has one order          |
| another sampler or batch sampler                 | kept, under seeds of the run, with a note             |
| `generator`                                      | not used: the seed of the run decides                 |
| `pin_memory`                                     | not used: an engine on a GPU pins what it moves there |
| an `__iter__` of its own, or `batch_size=None`   | read as it is, under seeds of the run, with a note    |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from esgd.protocols import Batch
from esgd.randomness import handle
from esgd.tasks.datasets import Iterated, Mapped
from esgd.tasks.orders import Grouped, Order, Sampled, Shuffled, Straight, is_numbered, samplers_in
from esgd.tasks.own_generators import generator_notes
from esgd.tasks.reading_processes import plain
from esgd.tasks.sources import Concern, Source, Stream

OPTIONS = ("timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")


def of_loader(name: str, loader: DataLoader[Any]) -> Source:
    """The source that reads what a loader reads."""
    own = type(loader).__iter__ is not DataLoader.__iter__
    kept = generator_notes(name, dataset=loader.dataset, collate_fn=loader.collate_fn)
    if own or (loader.batch_sampler is None and not _is_iterable(loader)):
        return Stream(Rereading(loader), type(loader).__name__, (_as_it_is(name, loader), *kept), name)
    options = {option: getattr(loader, option) for option in OPTIONS} if loader.num_workers else {}
    if _is_iterable(loader):
        if loader.batch_size is None:
            return Stream(Rereading(loader), type(loader.dataset).__name__, kept, name)
        return Iterated(
            loader.dataset,  # type: ignore[arg-type]
            loader.num_workers,
            collate=loader.collate_fn,
            batch_size=loader.batch_size,
            drop_last=loader.drop_last,
            options=options,
            notes=kept,
            name=name,
        )
    order, notes = _order(name, loader)
    return Mapped(
        loader.dataset,  # type: ignore[arg-type]
        loader.num_workers,
        order=order,
        collate=loader.collate_fn,
        batch_size=loader.batch_size,
        options=options,
        notes=(*notes, *kept),
        name=name,
    )


@dataclass(frozen=True, eq=False)
class Rereading:
    """Iterates over a loader again. A generator of its own is seeded from torch's, which is addressed."""

    loader: DataLoader[Any]

    def __call__(self) -> Iterator[Batch]:
        own = handle(self.loader.generator)
        if own is not None:
            own.seed(int(torch.empty((), dtype=torch.int64).random_()))
        return map(plain, self.loader)


def _is_iterable(loader: DataLoader[Any]) -> bool:
    return isinstance(loader.dataset, IterableDataset)


def _order(name: str, loader: DataLoader[Any]) -> tuple[Order, tuple[Concern, ...]]:
    """The order in which a loader reads its dataset, and what has to be said about it."""
    batches, sampler, last = loader.batch_sampler, loader.sampler, loader.drop_last
    if type(batches) is not BatchSampler or loader.batch_size is None:
        return Grouped(batches), (_kept(name, batches), *_share(name, batches))  # type: ignore[arg-type]
    everything = torch.arange(len(loader.dataset))  # type: ignore[arg-type]
    if type(sampler) is SequentialSampler:
        return Straight(everything, last), (_unshuffled(name),) if name == "train" else ()
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(everything):
        return Shuffled(everything, last), _own_generator(name, loader, sampler)
    if type(sampler) is SubsetRandomSampler:
        chosen = torch.tensor(list(sampler.indices), dtype=torch.int64)
        return Shuffled(chosen, last), _own_generator(name, loader, sampler)
    return Sampled(sampler, last), (_kept(name, sampler), *_share(name, sampler))


def _kept(name: str, sampler: object) -> Concern:
    asked = samplers_in(sampler)
    numbered = any(map(is_numbered, asked))
    through = "as the number of its epoch" if numbered else "through the global generators and its own `generator`"
    uncalled = any(hasattr(each, "set_epoch") and not is_numbered(each) for each in asked)
    told = " Its set_epoch is not called: individuals have no epoch in common." if uncalled else ""
    return (
        "sampler",
        f"{name} is read in the order of its {type(sampler).__name__}, which is given the run's seeds {through}."
        f"{told} If it keeps anything else from one epoch to the next, a resumed run differs.",
    )


def _share(name: str, sampler: object) -> tuple[Concern, ...]:
    """A note on a sampler that leaves samples to other processes."""
    asked = samplers_in(sampler)
    shares = max([each.num_replicas for each in asked if isinstance(each, DistributedSampler)], default=1)
    if shares == 1:
        return ()
    told = (
        f"{name} has one of {shares} shares of the samples, by its DistributedSampler. A population needs none on any "
        f"engine. Leave the sampler out, and all samples are read."
    )
    return (("share", told),)


def _own_generator(
    name: str, loader: DataLoader[Any], sampler: RandomSampler | SubsetRandomSampler
) -> tuple[Concern, ...]:
    if loader.generator is None and sampler.generator is None:
        return ()
    told = (
        f"The generator of the DataLoader of {name} is not used. The seed of the run decides the order, other for each "
        f"individual and epoch, so that a resumed run is the same."
    )
    return (("order", told),)


def _unshuffled(name: str) -> Concern:
    return (
        "order",
        f"The DataLoader of {name} does not shuffle, so every individual sees the same batches in every epoch. Use "
        f"shuffle=True unless the order has a meaning.",
    )


def _as_it_is(name: str, loader: object) -> Concern:
    return (
        "loader",
        f"{name} is read by the {type(loader).__name__} itself, because it makes its batches in its own way. What it "
        f"draws from global generators has the run's seeds. If it keeps anything else from one epoch to the next, a "
        f"resumed run differs.",
    )
