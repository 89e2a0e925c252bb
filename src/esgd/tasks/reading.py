"""From what a user passes as `train=`, `fitness=` or `test=` to a source.

| you have …                                         | it is read as                                        |
|----------------------------------------------------|------------------------------------------------------|
| (x, y): tensors, NumPy arrays, pandas frames       | tensors; batches are made by indexing                |
| a dict of tensors or arrays of one length          | tensors; a batch is a dict                           |
| a `DataLoader`                                     | its dataset, in an order that the run's seeds decide |
| a map-style `Dataset`, also Hugging Face's; a list | samples, which `collate_fn` makes batches of         |
| an `IterableDataset`                               | samples in its own order                             |
| another iterable, or a function that returns one   | batches                                              |
| a `Source`                                         | what it is                                           |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from esgd.errors import TaskError
from esgd.tasks import arrays
from esgd.tasks.batch_forms import IN_DICTS
from esgd.tasks.datasets import Iterated, Mapped
from esgd.tasks.layouts import check_layout
from esgd.tasks.loaders import of_loader
from esgd.tasks.own_generators import generator_notes
from esgd.tasks.reading_processes import Collate, MapStyle, plain
from esgd.tasks.sources import FIXED, Concern, Source, Stream, Tensors

NO_BATCHES = (str, bytes, Mapping, Tensor, tuple, list, nn.Module, type)
"""What can be iterated over, and gives no batches."""


@runtime_checkable
class Formatted(Protocol):
    """A dataset of Hugging Face: its samples are Python's lists unless another format is asked for."""

    @property
    def column_names(self) -> Any: ...

    def with_format(self, kind: str, /) -> Any: ...


@dataclass(frozen=True)
class Reader:
    """Makes sources of what a task was given, with what it says about all of its splits."""

    workers: int = 0
    collate: Collate | None = None
    batch_size: int | None = None
    target: str = IN_DICTS
    takes: str = ""  # what the loss takes as targets: arrays are cast to it

    def source(self, name: str, data: Any) -> Source:
        """The source behind `data`; refuses by name what cannot be one."""
        if isinstance(data, Source) and not isinstance(data, type):
            return data
        if isinstance(data, DataLoader):
            return self._of_loader(name, data)
        if type(data) is TensorDataset and self.collate is None:  # a subclass may augment in its __getitem__
            data = data.tensors
        if isinstance(data, tuple | list) and data and all(map(_is_column, data)):
            labels = [str(n) for n in range(len(data))]
            last = labels[-1]
            return _tensors(name, *arrays.cast(name, data, labels, target=last, takes={last: self.takes}))
        if isinstance(data, dict) and data and all(map(_is_column, data.values())):
            cast = arrays.cast(name, list(data.values()), list(data), takes={self.target: self.takes})
            return _tensors(name, *cast, names=tuple(data))
        if isinstance(data, Formatted) and not isinstance(data, type):
            data = _with_tensors(data)
        collate = self.collate or default_collate
        notes = generator_notes(name, dataset=data, collate_fn=self.collate)
        if isinstance(data, IterableDataset):
            return Iterated(data, self.workers, collate=collate, notes=notes, name=name)
        if isinstance(data, MapStyle) and _holds_samples(data):
            if len(data) == 0:
                raise TaskError(f"{name} is an empty {type(data).__name__}. Give it at least one sample.")
            if isinstance(data, list) and self.collate is None and _look_like_batches(data):
                raise TaskError(
                    f"{name} is a list, which is read as samples, and these look like batches: all parts of one have "
                    f"the same length. Write {name}=lambda: batches; or, if they are samples, give collate_fn=."
                )
            return Mapped(data, self.workers, collate=collate, notes=notes, name=name)
        return self._stream(name, data)

    def _of_loader(self, name: str, loader: DataLoader[Any]) -> Source:
        for what, given, own in (
            ("collate_fn", self.collate, "its own"),
            ("workers", self.workers or None, f"num_workers={loader.num_workers}"),
            ("batch_size", self.batch_size if name == "train" else None, f"batch_size={loader.batch_size}"),
        ):
            if given is not None and given != getattr(loader, {"workers": "num_workers"}.get(what, what)):
                raise TaskError(
                    f"{what}={given!r}, but {name} is a DataLoader with {own}. Say it in one place: leave out {what}, "
                    f"or give the loader's dataset."
                )
        if not isinstance(loader.dataset, IterableDataset) and len(loader.dataset) == 0:  # type: ignore[arg-type]
            raise TaskError(f"{name} is a DataLoader of an empty dataset. Give it at least one sample.")
        return of_loader(name, loader)

    def _stream(self, name: str, data: Any) -> Source:
        if isinstance(data, Iterator):
            raise TaskError(
                f"{name} is a {type(data).__name__}, which is used up after one epoch. Give a function that makes it "
                f"anew: lambda: …."
            )
        notes = generator_notes(name, batches=data)
        if callable(data) and not isinstance(data, type | nn.Module):
            return Stream(data, notes=notes, name=name)
        if isinstance(data, Iterable) and not isinstance(data, NO_BATCHES) and not arrays.is_array(data):
            return Stream(_Again(data), type(data).__name__, notes, name)
        raise TaskError(
            f"{name} is {_kind(data)}, which is not data we can read. Give (x, y) as torch tensors or arrays, a "
            f"DataLoader, a map-style Dataset, an iterable of batches, a function without arguments that returns one, "
            f"or a Source of your own."
        )


@dataclass(frozen=True, eq=False)
class _Again:
    """Iterates over batches from their beginning."""

    batches: Iterable[Any]

    def __call__(self) -> Iterable[Any]:
        return map(plain, self.batches)


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


def _with_tensors(data: Formatted) -> Any:
    """The same dataset with tensors for its numbers, unless it was given a format."""
    form = getattr(data, "format", None)
    given = form.get("type") if isinstance(form, Mapping) else None
    return data if given else data.with_format("torch")


def _holds_samples(data: MapStyle) -> bool:
    """Whether something with a length and an index is a dataset, and not one of the things that only look like it."""
    if isinstance(data, list):
        return all(isinstance(sample, tuple | list | Mapping) for sample in data[:1])
    return not isinstance(data, tuple | str | Mapping | Tensor | nn.Module) and not arrays.is_array(data)


def _look_like_batches(items: list[Any]) -> bool:
    """Whether the parts of every item are tensors with one first dimension, as a sample with its target rarely has.

    Parts with names must have another dimension, too: the tokens, the mask and the labels of a text are as long.
    """

    def looks_like_a_batch(item: Any) -> bool:
        parts = list(item.values()) if isinstance(item, Mapping) else item
        return (
            isinstance(parts, tuple | list)
            and len(parts) > 1
            and all(isinstance(part, Tensor) and part.dim() for part in parts)
            and len({len(part) for part in parts}) == 1
            and (not isinstance(item, Mapping) or any(part.dim() > 1 for part in parts))
        )

    return all(map(looks_like_a_batch, items))


def _tensors(
    name: str, tensors: tuple[Tensor, ...], notes: tuple[Concern, ...] = (), names: tuple[str, ...] = ()
) -> Tensors:
    for label, tensor in zip(map(repr, names) if names else range(len(tensors)), tensors, strict=True):
        check_layout(f"{name}[{label}]", tensor)
    lengths = [len(tensor) if tensor.dim() else 0 for tensor in tensors]
    if len(tensors) < 2 and not names:
        raise TaskError(f"{name} holds one tensor of shape {tuple(tensors[0].shape)}. Give inputs and targets: (x, y).")
    if min(lengths) == 0:
        raise TaskError(f"{name} is empty: its tensors have {lengths} samples. Give it at least one sample.")
    if len(set(lengths)) > 1:
        raise TaskError(f"{name} has tensors of {lengths} samples. Inputs and targets must have the same length.")
    for number, tensor in enumerate(tensors):
        bad = ~torch.isfinite(tensor) if tensor.dtype.is_floating_point else torch.zeros(1, dtype=torch.bool)
        if bad.any():
            rows = bad.reshape(len(tensor), -1).any(dim=1)
            where = repr(names[number]) if names else number
            raise TaskError(
                f"{name}[{where}] has NaN or inf in {int(rows.sum())} of {len(tensor)} samples, the first at index "
                f"{int(rows.nonzero()[0])}. Every loss they touch becomes NaN, and every individual diverges. Remove "
                f"or fill them; a model that really takes NaN can be given a Dataset instead of tensors."
            )
    return Tensors(tensors, names, notes)


def _is_column(item: object) -> bool:
    return isinstance(item, Tensor) or arrays.is_array(item)


def _kind(data: object) -> str:
    if isinstance(data, tuple | list):
        return f"a {type(data).__name__} of {', '.join(type(item).__name__ for item in data) or 'nothing'}"
    return f"a {type(data).__name__}"
