"""What travels between the machines of a cluster: a pickle, and beside it the bytes of large tensors and arrays.

Ray does not pickle those bytes. It copies them into its object store, and keeps them once on every node that asks for
them, where all processes can read them in place: a dataset is in memory once per node and not once per worker. But that
memory is shared, and a tensor that lies there can be written into; so only what is known to be data is left there.

Pickled by cloudpickle itself and not by Ray's edition of it, because only then is a class of the user's script, an
exception for instance, the same class again when it comes back.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esgd._tensors.layout import is_plain, lead, span
from esgd.engines.pickling import LARGE, Pickler

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Serialized:
    """A pickled value, the memory that its large tensors look at, the buffers of its large arrays, and which of all
    these are data that are never written into."""

    content: Bytes
    spans: tuple[Bytes, ...]
    buffers: tuple[Bytes, ...]
    data: frozenset[int] = frozenset()

    @staticmethod
    def of(value: Any, data: Any = ()) -> Serialized:
        """`data` hold those tensors and arrays of the value that are."""
        serialized, places = _packed(value)
        read_only = set(_packed(data)[1]) if data else set()
        return replace(serialized, data=frozenset(i for i, place in enumerate(places) if place in read_only))

    @property
    def _outside(self) -> tuple[Bytes, ...]:
        return (*self.spans, *self.buffers)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (self.content, *self._outside))

    def read(self) -> Any:
        """The value; its large tensors are looked at where they lie, so they must not be written into."""
        unpickler = _OutOfBandUnpickler(io.BytesIO(self.content.data), buffers=self.buffers)
        unpickler.spans = self.spans
        return unpickler.load()

    def take(self) -> Any:
        """The value, in memory of its own except for data; without any, the memory that it came in can be freed."""
        own = tuple(each if i in self.data else _copy(each) for i, each in enumerate(self._outside))
        return Serialized(self.content, own[: len(self.spans)], own[len(self.spans) :]).read()


Place = tuple[int, int]
"""Address and length of memory."""


def _packed(value: Any) -> tuple[Serialized, list[Place]]:
    """A value, and where that lies which is outside its pickle."""
    file, buffers = io.BytesIO(), list[Bytes]()

    def stays_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= LARGE:
            buffers.append(np.frombuffer(raw, dtype=np.uint8))
        return raw.nbytes < LARGE

    pickler = _OutOfBandPickler(file, protocol=5, buffer_callback=stays_inside)
    pickler.spans, pickler.numbers = [], {}
    pickler.dump(value)
    content = np.frombuffer(file.getbuffer(), dtype=np.uint8)
    places = [*pickler.numbers, *((each.ctypes.data, each.nbytes) for each in buffers)]
    return Serialized(content, tuple(pickler.spans), tuple(buffers)), places


def _copy(memory: Bytes) -> Bytes:
    """A copy that is aligned as Ray's own memory is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no tensors that are read-only
        return torch.from_numpy(memory).clone().numpy()


@dataclass(frozen=True, slots=True)
class _Look:
    """How a tensor looks at a span of memory, which begins `before` bytes before it: it stays aligned as it was."""

    span: int
    before: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _OutOfBandPickler(Pickler):
    spans: list[Bytes]
    numbers: dict[Place, int]  # what is looked at twice travels once

    def persistent_id(self, value: Any) -> _Look | None:
        if type(value) is not Tensor or not is_plain(value) or value.nbytes < LARGE:
            return None
        seen, before = span(value), lead(value)
        key = seen.data_ptr(), len(seen)
        if key not in self.numbers:
            self.numbers[key] = len(self.spans)
            self.spans.append(torch.cat([seen.new_zeros(before), seen]).numpy() if before else seen.numpy())
        return _Look(self.numbers[key], before, value.dtype, tuple(value.shape), value.stride())


class _OutOfBandUnpickler(pickle.Unpickler):
    spans: tuple[Bytes, ...]

    def persistent_load(self, look: _Look) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch has no tensors that are read-only
            memory = torch.from_numpy(self.spans[look.span]).untyped_storage()
        return torch.empty(0, dtype=look.dtype).set_(
            memory, look.before // look.dtype.itemsize, look.shape, look.stride
        )
