"""What travels between a pool and its workers: pickled messages in which tensors are addresses of shared memory.

Both ends are processes of one program, joined by a socket without a name; nothing that comes from a disk or a network
is ever read here. Large tensors and arrays of the task are put into shared memory once, so that a dataset is there once
per machine and not once per worker; what a worker writes there only it sees.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from esgd._tensors.layout import is_plain, lead
from esgd.engines.contract import in_groups
from esgd.engines.pickling import LARGE, Pickler
from esgd.engines.processes.memory import MappedSegments, SharedLocation, SharedMemory

PASSED_AT_ONCE = 200  # open files; Linux allows 253 in a message


@dataclass(frozen=True, eq=False)
class Message:
    """A pickled value, the segments of shared memory it speaks of, and what must stay alive while it is of use."""

    content: bytes | SharedLocation
    segments: frozenset[int]
    buffers: tuple[SharedLocation, ...] = ()
    kept: list[Tensor] = field(default_factory=list)


def pack(value: Any, memory: SharedMemory, *, share: bool = False) -> Message:
    """Pickle a value; what lies in shared memory becomes its address. With `share`, what is large is put there."""
    kept, buffers, file = list[Tensor](), list[SharedLocation](), io.BytesIO()

    def aside(buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer (of a NumPy array, say) stays inside the pickle."""
        raw = buffer.raw()
        if not share or raw.nbytes < LARGE:
            return True
        copy = memory.shared(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        kept.append(copy)
        buffers.append(_address(memory, copy))
        return False

    pickler = _SharedMemoryPickler(file, memory, kept, aside, share=share)
    pickler.dump(value)
    whole = file.getvalue()
    content: bytes | SharedLocation = whole
    if share and len(whole) >= LARGE:  # a long message would have to wait until the other side has woken up
        kept.append(memory.shared(torch.frombuffer(bytearray(whole), dtype=torch.uint8)))
        content = _address(memory, kept[-1])
        pickler.segments.add(content.segment)
    segments = pickler.segments | {address.segment for address in buffers}
    return Message(content, frozenset(segments), tuple(buffers), kept)


def pickled(value: Any) -> bytes:
    """A value in full, with nothing left in shared memory: what a worker answers."""
    content = pack(value, SharedMemory()).content
    assert isinstance(content, bytes)
    return content


def unpack(content: bytes | SharedLocation, mappings: MappedSegments, buffers: Sequence[SharedLocation] = ()) -> Any:
    """The inverse of `pack`, in a worker."""
    message = content if isinstance(content, bytes) else bytes(mappings.buffer(content))
    unpickler = _SharedMemoryUnpickler(io.BytesIO(message), buffers=[mappings.buffer(address) for address in buffers])
    unpickler.mappings = mappings
    return unpickler.load()


def _address(memory: SharedMemory, tensor: Tensor) -> SharedLocation:
    address = memory.address(tensor)
    assert address is not None, "the memory has just placed it"
    return address


class _SharedMemoryPickler(Pickler):
    """Tensors are places in shared memory where they can be."""

    def __init__(self, file: io.BytesIO, memory: SharedMemory, kept: list[Tensor], aside: Any, *, share: bool) -> None:
        super().__init__(file, protocol=5, buffer_callback=aside)
        self.memory, self.kept, self.share = memory, kept, share
        self.segments = set[int]()
        self._storages = dict[int, Tensor]()  # a storage that several tensors view is copied once

    def persistent_id(self, value: Any) -> SharedLocation | None:
        if type(value) is not Tensor or value.numel() == 0:
            return None
        address = self.memory.address(value)
        if address is None and self.share and _can_be_shared(value):
            address = self._shared(value)
        if address is not None:
            self.segments.add(address.segment)
        return address

    def _shared(self, tensor: Tensor) -> SharedLocation:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages:
            content = torch.empty(0, dtype=torch.uint8).set_(storage)
            before = lead(content)
            whole = self.memory.empty(before + len(content), dtype=torch.uint8)[before:].copy_(content)
            self._storages[storage.data_ptr()] = whole
            self.kept.append(whole)
        copy = _address(self.memory, self._storages[storage.data_ptr()])
        offset = copy.offset + int(tensor.storage_offset()) * tensor.dtype.itemsize
        return SharedLocation(copy.segment, offset, tensor.dtype, tuple(tensor.shape), tensor.stride())


class _SharedMemoryUnpickler(pickle.Unpickler):
    mappings: MappedSegments

    def persistent_load(self, address: SharedLocation) -> Tensor:
        return self.mappings.tensor(address)


def _can_be_shared(tensor: Tensor) -> bool:
    return is_plain(tensor) and tensor.untyped_storage().nbytes() >= LARGE


class Channel:
    """One end of the socket between the pool and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self.socket, self.connection = end, Connection(os.dup(end.fileno()))

    def send(self, content: bytes, descriptors: Sequence[int] = ()) -> None:
        """A message, with open files if there are any."""
        self.connection.send_bytes(len(descriptors).to_bytes(4) + content)
        for some in in_groups(descriptors, PASSED_AT_ONCE):
            socket.send_fds(self.socket, [b"."], list(some))

    def receive(self) -> tuple[bytes, list[int]]:
        message = self.connection.recv_bytes()
        expected = int.from_bytes(message[:4])
        descriptors = list[int]()
        while len(descriptors) < expected:
            came, some, flags, _ = socket.recv_fds(self.socket, 1, PASSED_AT_ONCE)
            if not came:  # the other side has died after its message
                raise EOFError
            descriptors += some
            if flags & socket.MSG_CTRUNC:  # the others are lost, and would be waited for for ever
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return message[4:], descriptors

    def close(self) -> None:
        self.connection.close()
        self.socket.close()
