"""What the checks compare: whether two values are equal, and whether the global generators were not used."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esgd._tensors.batches import Movable, tensors_in
from esgd.errors import EsgdError
from esgd.population import Population


def expect(condition: object, message: str) -> None:
    """An `assert` that also works under python -O."""
    if not condition:
        raise AssertionError(message)


@contextmanager
def passing_on_errors(what: str) -> Iterator[None]:
    """Errors of the block that a plug-in's author can act on, as the AssertionError that a check promises."""
    try:
        yield
    except (EsgdError, TypeError) as error:
        raise AssertionError(f"{what}: {error}") from error


def difference(found: Any, expected: Any, *, tolerance: float = 0.0, place: str = "") -> str:
    """The first place where two trees of tensors, mappings, sequences and plain values differ, or nothing.

    Tensors are compared bit for bit (NaN equals NaN), or within `tolerance`, absolute and relative.

    >>> difference({"rows": torch.zeros(2)}, {"rows": torch.ones(2)})
    'rows differs by up to 1'
    """
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        return _between_tensors(found.detach().cpu(), expected.detach().cpu(), tolerance, place or "the tensor")
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        if set(found) != set(expected):
            return f"{place or 'the mapping'} has {sorted(found)} instead of {sorted(expected)}"
        pairs = [(str(name), found[name], expected[name]) for name in expected]
    elif _is_sequence(found) and _is_sequence(expected):
        if len(found) != len(expected):
            return f"{place or 'the sequence'} has {len(found)} items instead of {len(expected)}"
        pairs = [(str(i), *both) for i, both in enumerate(zip(found, expected, strict=True))]
    elif isinstance(found, Movable) and type(found) is type(expected):
        pairs = [("tensors", list(tensors_in(found)), list(tensors_in(expected)))]
    else:
        return "" if found == expected else f"{place or 'the value'} is {found!r} instead of {expected!r}"
    inner = (difference(a, b, tolerance=tolerance, place=f"{place}.{name}".strip(".")) for name, a, b in pairs)
    return next((text for text in inner if text), "")


def contents(population: Population) -> dict[str, Any]:
    """A copy of all that a population consists of, for comparison."""
    return {
        "rows": population.rows.clone(),
        "buffers": {name: stacked.clone() for name, stacked in population.buffers.items()},
        "fitness": population.fitness.clone(),
        "births": list(population.births),
        "policies": list(population.policies),
        "baggage": [
            None if each is None else {"optimizer": each.kind, "tensors": dict(each.tensors)}
            for each in population.optimizer_states
        ],
    }


@contextmanager
def leaves_global_randomness_alone(who: str) -> Iterator[None]:
    """Fail if the global generators of torch, `random` or NumPy moved inside the block."""
    before = _global_states()
    yield
    moved = [name for name, state in _global_states().items() if state != before[name]]
    expect(
        not moved,
        f"{who} moved the global random generator of {' and '.join(moved)}. Its result then depends on whatever ran "
        f"before, and a resumed run is another run. Draw from the generator or the seeds that it is given.",
    )


def _global_states() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the legacy state is what must not move
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "random": random.getstate(),
        "NumPy": (kind, np.asarray(keys).tobytes(), *rest),
    }


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _between_tensors(found: Tensor, expected: Tensor, tolerance: float, place: str) -> str:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        kinds = [f"{tensor.dtype} of shape {tuple(tensor.shape)}" for tensor in (found, expected)]
        return f"{place} is {kinds[0]} instead of {kinds[1]}"
    close = torch.isclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=found.is_floating_point())
    if close.all():
        return ""
    gap = (found.double() - expected.double()).abs()
    return f"{place} differs by up to {float(gap.where(~gap.isnan(), torch.inf)[~close].max()):.3g}"
