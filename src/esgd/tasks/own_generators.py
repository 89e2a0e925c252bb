"""Random generators that a dataset keeps for itself. The seeds of a run do not reach them, so they are named.

The search runs no code of the user's. It looks at types and not at `__class__`, into lists, tuples and dicts but not
into subclasses of them, and passes over objects that compute their attributes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from types import (
    BuiltinMethodType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from esgd.tasks.sources import Concern

DEPTH, ITEMS, MOST = 4, 32, 1000
"""How deep objects are searched, items of each list or dict, and how many objects: a dataset may hold all samples."""

GLOBAL = (torch.default_generator, random._inst, np.random.mtrand._rand)
"""What `torch.rand`, `random.random` and `numpy.random.rand` draw from. These have the seeds of the run."""

GENERATORS = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)

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
    """Where generators are, such as "dataset.rng (numpy's Generator)"."""
    waiting, seen = deque([(value, path, 0)]), set[int]()
    while waiting and len(seen) < MOST:
        value, path, depth = waiting.popleft()
        kind, known = type(value), id(value) in seen or any(value is each for each in GLOBAL)
        seen.add(id(value))
        if known or issubclass(kind, NOT_SEARCHED):
            continue
        if issubclass(kind, GENERATORS) and not issubclass(kind, random.SystemRandom):  # which has no state
            yield f"{path} ({kind.__module__.partition('.')[0]}'s {kind.__name__})"
        elif depth < DEPTH:
            waiting += [(each, f"{path}{step}", depth + 1) for step, each in _inside(value)]


def _inside(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, each with the step of the path that leads to it."""
    kind = type(value)
    if kind is dict:
        return [(f"[{_key(name)}]", each) for name, each in list(islice(value.items(), ITEMS))]
    if kind in (list, tuple):
        return [(f"[{n}]", each) for n, each in enumerate(value[:ITEMS])]
    if kind in (MethodType, BuiltinMethodType):
        return [(".__self__", value.__self__)]
    held = [(".func", value.func), (".args", value.args), (".keywords", value.keywords)] if kind is partial else []
    return held + [(f".{name}", each) for name, each in list(_attributes(value).items()) if type(name) is str]


def _key(name: Any) -> str:
    """A key of a dict in a path; the kind of a key whose `repr` may be code of the user's."""
    return repr(name) if type(name) in (str, int) else type(name).__name__


def _attributes(value: Any) -> dict[Any, Any]:
    """Those that an object keeps itself; none where its class computes what `__dict__` is, as proxies do."""
    try:
        kept = next((vars(each)["__dict__"] for each in type(value).__mro__ if "__dict__" in vars(each)), None)
        plain = type(kept) in (GetSetDescriptorType, MemberDescriptorType)
        found = object.__getattribute__(value, "__dict__") if plain else {}
    except Exception:  # noqa: BLE001  # a note is not worth the end of a run
        return {}
    return found if type(found) is dict else {}
