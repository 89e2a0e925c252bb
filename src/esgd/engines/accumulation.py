"""Gradient accumulation: which batches of an epoch one step of the optimizer takes, and with which weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import ceil

from esgd.policies import Policy
from esgd.protocols import Batch, Task, Weighted


def batches_of_steps(batches: Iterable[Batch], accumulate: int) -> Iterator[tuple[Batch, ...]]:
    """The batches of each step; the last step of an epoch has those that are left. None is read before its step.

    >>> list(batches_of_steps("abcde", 2))
    [('a', 'b'), ('c', 'd'), ('e',)]
    """
    source = iter(batches)
    while taken := tuple(islice(source, accumulate)):
        yield taken


def optimizer_steps(task: Task, policy: Policy) -> int | None:
    """How many steps of the optimizer an epoch has, if that can be known."""
    batches = task.steps(policy.settings)
    return None if batches is None else ceil(batches / policy.accumulate)


def batch_shares(task: Task, batches: Sequence[Batch]) -> list[float]:
    """The weights of batches in a step, so that their losses, each a mean, add up to the mean over all their samples.

    A batch weighs as much as its samples, or as a `Weighted` task says: Σ w·ℓ / Σ w is then that of one large batch.
    """
    if len(batches) == 1:
        return [1.0]
    counts = [float(task.divisor(batch) if isinstance(task, Weighted) else task.size(batch)) for batch in batches]
    total = sum(counts)
    return [count / total if total else 1.0 / len(counts) for count in counts]
