"""Samples of a dataset that are decoded once and kept, if reading them again gives the same.

Every individual reads every sample in every epoch. A dataset does not say whether it changes its samples at random, so
this is observed. What is read does not depend on what is kept; only how long it takes does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esgd._limits import available_memory
from esgd._tensors.layout import is_plain, twin
from esgd.randomness import host_state, same_host_state

KEPT_BYTES, SHARE = 1 << 30, 1 / 16
"""The most that is kept: a gigabyte, and this share of the memory that is available."""

ENOUGH = 1000
"""So many samples, or all, must have been equal when they were read again, and none different."""

LOOKED_AT, CHEAP = 64, 2e-5
"""After so many samples it is known whether reading one takes longer than these seconds. If not, it is in memory."""

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)

Read = Callable[[list[int]], list[Any]]
"""Reads the samples at these indices."""


class KeptSamples:
    """What was read of one dataset; `processes` share the memory, and `lends` says that no sample is written into.

    A sample is kept when it is first read, and compared when it is read again. Keeping ends for good when two readings
    differ, when a reading draws from a global generator, when a sample has something in it that cannot be compared, or
    when reading takes no time. Once samples are taken from here, one of each batch is still read again:
    that shows whether somebody has changed the dataset. A copy, also in another process, begins with nothing.
    """

    def __init__(self, samples: int, *, processes: int = 1, lends: bool = False) -> None:
        self._anew = partial(KeptSamples, samples, processes=processes, lends=lends)
        self._enough, self._lends = min(samples, ENOUGH), lends
        self._limit, self._bytes = min(KEPT_BYTES, SHARE * available_memory()) / processes, 0
        self._kept, self._equal = dict[int, Any](), set[int]()
        self._reading, self._read, self._ended = 0.0, 0, False

    def __reduce__(self) -> tuple[Any, ...]:
        return self._anew, ()

    def read(self, indices: list[int], read: Read) -> list[Any] | None:
        """The samples at these indices; None if it turns out that all must be read, under the same seed."""
        if self._ended:
            return read(indices)
        if len(self._equal) < self._enough:
            return self._observed(indices, read)
        new = [index for index in indices if index not in self._equal]
        found = dict(zip(new, self._observed(new, read), strict=True)) if new else {}
        again = next((index for index in indices if index in self._equal), None)
        if again is not None and not _same(self._kept[again], read([again])[0]):
            self._end()
        if self._ended:
            return None
        return [found[index] if index in found else self._lent(index) for index in indices]

    def _observed(self, indices: list[int], read: Read) -> list[Any]:
        """Read them all, and compare them with what was read before."""
        before, begun = host_state(), perf_counter()
        samples = read(indices)
        self._reading, self._read = self._reading + perf_counter() - begun, self._read + len(indices)
        drew = not same_host_state(before, host_state())
        cheap = self._read >= LOOKED_AT and self._reading < CHEAP * self._read
        if drew or cheap or not all(map(self._as_before, indices, samples)):
            self._end()
        return samples

    def _as_before(self, index: int, sample: Any) -> bool:
        """Keep a sample, or compare it; returns whether it can be the same each time."""
        if index in self._kept:
            self._equal.add(index)
            return _same(self._kept[index], sample)
        try:
            size = _size(sample)
        except TypeError:
            return False
        if self._bytes + size <= self._limit:
            self._kept[index], self._bytes = _copy(sample), self._bytes + size
        return True

    def _lent(self, index: int) -> Any:
        return self._kept[index] if self._lends else _copy(self._kept[index])

    def _end(self) -> None:
        self._ended, self._kept, self._equal = True, {}, set()


def _size(sample: Any) -> int:
    """Bytes of a sample; raises TypeError for what cannot be copied and compared.

    >>> _size((torch.zeros(3, dtype=torch.float32), "cat", 7))
    15
    """
    if type(sample) is Tensor and is_plain(sample):
        return sample.nbytes
    if type(sample) is np.ndarray and not sample.dtype.hasobject:
        return sample.nbytes
    if type(sample) in (tuple, list):
        return sum(map(_size, sample))
    if type(sample) is dict:
        return sum(map(_size, sample.values()))
    if isinstance(sample, PLAIN):
        return len(sample) if isinstance(sample, str | bytes) else 0
    raise TypeError(type(sample).__name__)


def _copy(sample: Any) -> Any:
    """The sample in memory of its own, which lies there as before: the last bits of a product may depend on that."""
    if isinstance(sample, Tensor):
        return twin(sample)
    if isinstance(sample, np.ndarray):
        return sample.copy(order="K")
    if isinstance(sample, tuple | list):
        return type(sample)(map(_copy, sample))
    return {name: _copy(value) for name, value in sample.items()} if isinstance(sample, dict) else sample


def _same(one: Any, other: Any) -> bool:
    """Whether two samples have the same content; NaN is like nothing.

    >>> _same((torch.ones(2), 3), (torch.ones(2), 3)), _same([1], [True]), _same({"a": 1}, {"a": 2})
    (True, False, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.strides == other.strides and np.array_equal(one, other))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)
