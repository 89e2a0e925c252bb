"""Randomness that is addressed, not consumed.

`seeds("mutate", k, v, i)` always gives the same fresh generator, whoever asks and whenever. No stream is
shared, so the number of workers, the order in which they finish and a resume in the middle cannot change a
result; and two arms of a comparison that ask the same question get the same answer.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import torch

Address = str | int


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
    state is addressed too, and outside nobody notices that we were there.
    """
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        seed_globals(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


def seed_globals(seed: int) -> None:
    """Set the three global generators; only ever called where the caller's state is given back later."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
