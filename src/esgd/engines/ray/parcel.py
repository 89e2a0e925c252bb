"""The task on its way to the nodes of a cluster: pickled once, its large arrays beside the pickle.

Ray keeps an object once per node and lets every process there read it in place. So a dataset is in memory once per
node and not once per worker; workers must not write into it, and nothing in the library does.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGE = 1 << 16
"""Bytes from which a tensor or array lies beside the pickle."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: in which storage, and how it looks at it."""

    storage: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Parcel:
    """A pickled value, the storages of its large tensors, and the buffers of its large arrays."""

    content: bytes
    storages: tuple[Bytes, ...]
    buffers: tuple[Bytes, ...]

    @staticmethod
    def of(value: Any) -> Parcel:
        file, buffers = io.BytesIO(), list[Bytes]()

        def aside(buffer: pickle.PickleBuffer) -> bool:
            """Whether a buffer stays inside the pickle."""
            raw = buffer.raw()
            if raw.nbytes < LARGE:
                return True
            buffers.append(np.frombuffer(raw, dtype=np.uint8))
            return False

        pickler = _Pickler(file, aside)
        pickler.dump(value)
        return Parcel(file.getvalue(), tuple(pickler.storages), tuple(buffers))

    def open(self) -> Any:
        unpickler = _Unpickler(io.BytesIO(self.content), buffers=self.buffers)
        unpickler.storages = self.storages
        return unpickler.load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no annotations
    def __init__(self, file: io.BytesIO, aside: Any) -> None:
        super().__init__(file, protocol=5, buffer_callback=aside)
        self.storages = list[Bytes]()
        self._numbers = dict[int, int]()  # a storage that several tensors view travels once

    def persistent_id(self, value: Any) -> Place | None:
        if type(value) is not Tensor or not _is_large(value):
            return None
        storage = value.untyped_storage()
        if storage.data_ptr() not in self._numbers:
            self._numbers[storage.data_ptr()] = len(self.storages)
            self.storages.append(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())
        return Place(
            self._numbers[storage.data_ptr()],
            value.dtype,
            int(value.storage_offset()),
            tuple(value.shape),
            tuple(value.stride()),
        )


class _Unpickler(pickle.Unpickler):
    storages: tuple[Bytes, ...]

    def persistent_load(self, place: Place) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # read-only memory: nobody writes into a task's data
            storage = torch.from_numpy(self.storages[place.storage]).untyped_storage()
        return torch.empty(0, dtype=place.dtype).set_(storage, place.offset, place.shape, place.stride)


def _is_large(tensor: Tensor) -> bool:
    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.requires_grad
    odd = tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    return plain and not odd and tensor.untyped_storage().nbytes() >= LARGE
