"""Random generators that a dataset keeps for itself. The seeds of a run do not reach them, so they are named."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from esgd.randomness import handle
from esgd.tasks.sources import Concern

DEPTH, ITEMS, MOST = 4, 32, 1000
"""How deep objects are searched, items of each list or dict, and how many objects: a dataset may hold all samples."""

GLOBAL = (torch.default_generator, random._inst, np.random.mtrand._rand)
"""What `torch.rand`, `random.random` and `numpy.random.rand` draw from. These have the seeds of the run."""

NOT_SEARCHED = (Tensor, np.ndarray, nn.Module, type, ModuleType, FunctionType, str, bytes, int, float)


def generator_notes(name: str, **parts: Any) -> tuple[Concern, ...]:
    """A note on the generators in what reads a split, by their paths; none where there are none.

    >>> from types import SimpleNamespace
    >>> ((kind, text),) = generator_notes("train", dataset=SimpleNamespace(noise=random.Random(3)))
    >>> kind, text[:46]
    ('generator', 'train has a random generator of its own, datas')
    """
    found = [path for part, value in parts.items() for path in _paths(value, part)]
    if not found:
        return ()
    several = len(found) > 1
    return (
        (
            "generator",
            f"{name} has {'random generators' if several else 'a random generator'} of its own, {', '.join(found)}. "
            f"The seeds of the run do not reach {'them' if several else 'it'}, and no checkpoint has "
            f"{'their states' if several else 'its state'}. If samples are drawn or changed with "
            f"{'them' if several else 'it'}, a resumed run differs. Draw from torch.rand, numpy.random or random "
            f"instead, which have the seeds of the run.",
        ),
    )


def _paths(value: Any, path: str) -> Iterator[str]:
    """Where generators are, such as "dataset.rng (Generator)"."""
    waiting, seen = deque([(value, path, 0)]), set[int]()
    while waiting and len(seen) < MOST:
        value, path, depth = waiting.popleft()
        known = id(value) in seen or any(value is each for each in GLOBAL)
        seen.add(id(value))
        if known or isinstance(value, NOT_SEARCHED):
            continue
        if handle(value) is not None:
            yield f"{path} ({type(value).__module__.partition('.')[0]}'s {type(value).__name__})"
        elif depth < DEPTH:
            waiting += [(each, f"{path}{step}", depth + 1) for step, each in _inside(value)]


def _inside(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{name!r}]", each) for name, each in islice(value.items(), ITEMS)]
    if isinstance(value, list | tuple):
        return [(f"[{n}]", each) for n, each in enumerate(value[:ITEMS])]
    return [(f".{name}", each) for name, each in getattr(value, "__dict__", {}).items()]
