"""Shared memory without a name: when the last process that maps it ends, however it ends, it is released. Nothing can
be left behind in `/dev/shm`."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from weakref import WeakValueDictionary, finalize

import torch
from torch import Tensor, nn

from esgd._limits import available_memory, shortage
from esgd._tensors.layout import ALIGNMENT, is_plain, lead
from esgd.engines.pickling import LARGE
from esgd.errors import EngineError

ARENA = 1 << 22
"""Smaller tensors share a segment of this many bytes, so that buffers do not use up file descriptors."""


@dataclass(frozen=True, slots=True)
class SharedLocation:
    """Where a tensor lies in shared memory: what travels instead of the tensor."""

    segment: int
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Segment(mmap.mmap):
    """One mapping; a tensor made from it keeps it alive."""

    number: int
    descriptor: int


class SharedMemory:
    """The shared memory of one pool, as the process that owns it sees it."""

    def __init__(self) -> None:
        self._numbers = count()
        self._segments = WeakValueDictionary[int, Segment]()
        self._starts = dict[int, int]()  # address of the first byte → number, for segments that are alive
        self._arena: tuple[Segment, int] | None = None

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor that every worker can reach."""
        size = prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        segment, offset = self._place(size)
        return torch.frombuffer(segment, dtype=dtype, count=prod(shape), offset=offset).view(shape)

    def shared(self, tensor: Tensor) -> Tensor:
        """The tensor, moved here if it lay elsewhere: as with `Tensor.share_memory_`, its old memory is given back."""
        if tensor.numel() == 0 or self.address(tensor) is not None:
            return tensor
        here = self.empty(*tensor.shape, dtype=tensor.dtype).copy_(tensor)
        return tensor.set_(here.untyped_storage(), here.storage_offset(), here.shape, here.stride())

    def hold_frozen(self, module: nn.Module) -> None:
        """Move the large frozen parameters of a network here, so that this process has no second copy of a base that
        its workers map."""
        for parameter in module.parameters():
            tensor = parameter.detach()
            frozen = not parameter.requires_grad and is_plain(tensor) and tensor.is_contiguous() and not lead(tensor)
            if frozen and tensor.nbytes >= LARGE:
                parameter.data = self.shared(tensor)

    def address(self, tensor: Tensor) -> SharedLocation | None:
        """Where the tensor lies, if it lies here."""
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        for number, segment in list(self._segments.items()):
            begin = self._starts[number]
            if begin <= storage.data_ptr() < begin + len(segment):
                offset = tensor.data_ptr() - begin
                return SharedLocation(number, offset, tensor.dtype, tuple(tensor.shape), tensor.stride())
        return None

    def alive(self) -> dict[int, Segment]:
        """The segments that somebody still uses, by number."""
        return dict(self._segments)

    def _place(self, size: int) -> tuple[Segment, int]:
        if size >= ARENA:
            return self._segment(size), 0
        if self._arena is None or self._arena[1] + size > ARENA:
            self._arena = (self._segment(ARENA), 0)
        segment, offset = self._arena
        self._arena = (segment, offset + -(-size // ALIGNMENT) * ALIGNMENT)
        return segment, offset

    def _segment(self, size: int) -> Segment:
        descriptor = _anonymous_file(size)
        try:
            segment = Segment(descriptor, size)
        except OSError as error:  # `ulimit -v`, or no more open files: a mapping has one of its own
            os.close(descriptor)
            raise _refused(size, error) from error
        segment.number, segment.descriptor = next(self._numbers), descriptor
        self._segments[segment.number] = segment
        self._starts[segment.number] = torch.frombuffer(segment, dtype=torch.uint8, count=1).data_ptr()
        finalize(segment, _forget, descriptor, self._starts, segment.number)
        return segment


def _forget(descriptor: int, starts: dict[int, int], number: int) -> None:
    os.close(descriptor)
    starts.pop(number, None)


def _anonymous_file(size: int) -> int:
    """A file of `size` bytes in memory, without a name."""
    descriptor = -1
    try:
        if size > available_memory():  # the kernel would promise it, and end somebody later
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        descriptor = os.memfd_create("esgd") if hasattr(os, "memfd_create") else _unlinked_file()
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise _refused(size, error) from error
    return descriptor


def _refused(size: int, error: OSError) -> EngineError:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return EngineError(shortage(error))
    return EngineError(
        f"the machine has no {size / 1e6:.0f} MB of memory left for rows that workers share ({error.strerror}). Use a "
        f"smaller population, or engine='loop', which needs no second copy of the data."
    )


def _unlinked_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class MappedSegments:
    """The shared memory of one pool, as a worker sees it. What it writes into a `private` one stays its own: the system
    copies those pages, and only those, when they are written to."""

    def __init__(self, *, private: bool = False) -> None:
        self._segments = dict[int, mmap.mmap]()
        self._access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE

    def add(self, number: int, descriptor: int) -> None:
        self._segments[number] = mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=self._access)
        os.close(descriptor)

    def drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._segments.pop(number, None)

    def tensor(self, address: SharedLocation) -> Tensor:
        storage = torch.frombuffer(self._segments[address.segment], dtype=torch.uint8).untyped_storage()
        start = address.offset // address.dtype.itemsize
        return torch.empty(0, dtype=address.dtype).set_(storage, start, address.shape, address.stride)

    def buffer(self, address: SharedLocation) -> memoryview:
        return memoryview(self._segments[address.segment])[address.offset : address.offset + prod(address.shape)]
