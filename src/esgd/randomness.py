"""Randomness that is addressed, not consumed.

`seeds("mutate", k, v, i)` always gives the same fresh generator, in any process and at any time. No stream is
shared, so the number of workers, the order in which they finish and a resume in the middle cannot change a
result; and two arms of a comparison that ask the same question get the same answer.

The global generators, and torch's number of threads, belong to a process. Runs in several threads of one take turns, a
generation at a time: their results are those of runs alone, and no sooner there. Processes compute side by side.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from threading import RLock, local
from typing import Any, TypeVar

import numpy as np
import torch

Address = str | int
T = TypeVar("T")

TURN = RLock()
"""Held by the thread that computes."""


class _Lent(local):
    """The seeds that this thread has lent to the global generators now, the innermost last."""

    def __init__(self) -> None:
        self.seeds = list[int]()


_lent = _Lent()


@dataclass(frozen=True, slots=True)
class Seeds:
    """A node in the tree of random streams of one run.

    >>> seeds = Seeds(0)
    >>> seeds("mutate", 3, 1).initial_seed() == seeds.at("mutate")(3, 1).initial_seed()
    True
    >>> seeds("mutate", 3, 1).initial_seed() == seeds("mutate", 3, 2).initial_seed()
    False
    """

    root: int
    path: tuple[Address, ...] = ()

    def at(self, *path: Address) -> Seeds:
        """The node further down: `seeds.at("sgd", k, j)` is what one individual needs to know."""
        return Seeds(self.root, self.path + path)

    def integer(self, *path: Address) -> int:
        """A 63-bit number for this address: the hash of (root, path)."""
        words = repr((self.root, *self.path, *path)).encode()
        return int.from_bytes(blake2b(words, digest_size=8).digest()) >> 1

    def __call__(self, *path: Address) -> torch.Generator:
        """A fresh CPU generator for this address."""
        return torch.Generator().manual_seed(self.integer(*path))


@contextmanager
def global_randomness(seed: int) -> Iterator[None]:
    """Lend `seed` to the global generators of torch, `random` and NumPy; give the caller's state back after.

    A user's dropout layer, `nn.init` call or augmentation draws from global state. Inside this block that
    state is addressed too, and the caller's state is unchanged afterwards.
    """
    with TURN:
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002  # lent, and given back
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            seed_globals(seed)
            _lent.seeds.append(seed)
            try:
                yield
            finally:
                _lent.seeds.pop()
                random.setstate(python_state)
                np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def brief_randomness(seed: int) -> Iterator[None]:
    """As `global_randomness`, and faster inside one: there is one for every batch that is read.

    To copy NumPy's state takes longer than to read a small batch, so another bit generator is put in its place. The one
    thing that the generator outside then loses is the second of two normal numbers, which NumPy draws together. A
    thread that has lent nothing itself waits for its turn.
    """
    if not _lent.seeds or _has_accelerator():
        with global_randomness(seed):
            yield
        return
    numpy: Any = np.random  # whose stubs leave out the two functions
    state, torch_state, bits = random.getstate(), torch.default_generator.get_state(), numpy.get_bit_generator()
    numpy.set_bit_generator(np.random.MT19937(0) if bits is _spare() else _spare())
    seed_globals(seed)
    try:
        yield
    finally:
        numpy.set_bit_generator(bits)
        torch.default_generator.set_state(torch_state)
        random.setstate(state)


def in_turns(steps: Iterator[T]) -> Generator[T]:
    """The same values; while one is computed, no other thread computes one.

    >>> list(in_turns(iter("abc")))
    ['a', 'b', 'c']
    """
    while True:
        with TURN:
            found = list(islice(steps, 1))
        if not found:
            return
        yield found.pop()


def seed_globals(seed: int) -> None:
    """Set the three global generators; only ever called where the caller's state is given back later."""
    if _has_accelerator():
        torch.manual_seed(seed)
    else:  # torch.manual_seed would write down the stack for each kind of device that is not there: half a millisecond
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002


@cache
def _spare() -> np.random.MT19937:
    return np.random.MT19937(0)


@cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


def global_state() -> tuple[Any, ...]:
    """The state of the global generators of torch, `random` and NumPy."""
    return *host_state(), *torch.cuda.get_rng_state_all()


def host_state() -> tuple[Any, ...]:
    """The same without devices, so that no device is touched."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002


def set_global_state(state: tuple[Any, ...]) -> None:
    """Continue from a state; only ever called where the caller's state is given back later."""
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    np.random.set_state(state[2])  # noqa: NPY002
    torch.cuda.set_rng_state_all(list(state[3:]))


def same_host_state(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two states of the host are the same: nothing was drawn in between.

    >>> before = host_state()
    >>> same_host_state(before, host_state())
    True
    """
    return (
        torch.equal(one[0], other[0])
        and one[1] == other[1]
        and all(np.array_equal(*pair) for pair in zip(one[2], other[2], strict=True))
    )


@dataclass(frozen=True, eq=False)
class Handle:
    """How a generator that somebody owns is looked at, put back and seeded."""

    state: Callable[[], Any]
    restore: Callable[[Any], Any]
    seed: Callable[[int], Any]


def handle(value: object) -> Handle | None:
    """The handle of a generator of torch, `random` or NumPy; None for anything else.

    >>> noise = handle(random.Random(3))
    >>> noise.seed(5), noise.state() == random.Random(5).getstate()
    (None, True)
    """
    match value:
        case torch.Generator():
            return Handle(value.get_state, value.set_state, value.manual_seed)
        case random.Random() if not isinstance(value, random.SystemRandom):
            return Handle(value.getstate, value.setstate, value.seed)
        case np.random.RandomState():
            return Handle(value.get_state, value.set_state, lambda seed: value.seed(seed % 2**32))
        case np.random.Generator():
            bits = value.bit_generator
            kind: Any = type(bits)
            restore = partial(setattr, bits, "state")
            return Handle(lambda: bits.state, restore, lambda seed: restore(kind(seed).state))
    return None
