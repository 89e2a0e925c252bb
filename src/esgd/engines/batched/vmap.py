"""`Vmap(chunk)`: many networks in one batched computation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from esgd._limits import within_limits
from esgd._validation import is_count
from esgd.engines.batched.kernel import WAVE, BatchedKernel
from esgd.engines.batched.optimizers import optimizer_family
from esgd.engines.computing import Computing, Precision
from esgd.engines.contract import Kernel, in_groups
from esgd.engines.dispatch import Dispatcher
from esgd.engines.inline import InlineExecutor
from esgd.engines.resident import with_data_on_device
from esgd.errors import RecipeError
from esgd.policies import Policy, optimizer_class
from esgd.protocols import Session, Setup, Tick


@dataclass(frozen=True, kw_only=True)
class Vmap:
    """Train and evaluate up to `chunk` individuals at once in this process; the other fields are `Computing`'s.

    Each row has its own batches, its own hyper-parameters and, where settings differ, a group of its own. Equal to
    `Loop` up to rounding, except that networks with dropout draw other random numbers. For many small networks, and
    for GPUs.
    """

    chunk: int = 16
    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "float32"
    compile: bool = False
    onednn: bool = False

    def __post_init__(self) -> None:
        if not is_count(self.chunk):
            raise RecipeError(f"chunk={self.chunk!r} is not 1 or more: it is how many networks are trained at once.")
        _ = self.computing  # refuses what cannot be

    @property
    def computing(self) -> Computing:
        return Computing(
            device=self.device,
            threads=self.threads,
            precision=self.precision,
            compile=self.compile,
            onednn=self.onednn,
        )

    @property
    def rows_at_once(self) -> int:
        return WAVE * self.chunk

    def groups(self, policies: Sequence[Policy]) -> list[list[int]]:
        """Rows with the same settings and as many batches in a step, at most `chunk`; of one family of optimizers,
        except where two families meet."""
        by_settings = dict[Any, list[int]]()
        for j, policy in enumerate(policies):
            alone = j if _needs_closure(policy) else None
            same = (alone, repr(sorted(policy.settings.items())), policy.accumulate)
            by_settings.setdefault(same, []).append(j)
        return [
            list(group)
            for members in by_settings.values()
            for group in in_groups(
                sorted(members, key=lambda j: (optimizer_family(policies[j]).__name__, j)), self.chunk
            )
        ]

    def kernel(self, setup: Setup) -> Kernel:
        return BatchedKernel(with_data_on_device(setup, self.computing), self.computing, self.chunk)

    @contextmanager
    def open(self, setup: Setup, tick: Tick) -> Iterator[Session]:
        with within_limits():
            executor = InlineExecutor(self.kernel(setup), self.threads)
            yield Dispatcher(setup, executor, grouping=self.groups, rows_at_once=self.rows_at_once, tick=tick)


def _needs_closure(policy: Policy) -> bool:
    """Whether an optimizer evaluates the loss itself, like L-BFGS: then it has to be alone."""
    step = inspect.signature(optimizer_class(policy.optimizer).step)
    return any(p.name == "closure" and p.default is p.empty for p in step.parameters.values())
