"""Engines inside others: what can run in several workers, and how it is sent there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from esgd.engines.contract import Kernel
from esgd.errors import EngineError, RecipeError
from esgd.policies import Policy
from esgd.protocols import Setup


@runtime_checkable
class Inner(Protocol):
    """An engine that makes a kernel, and so can run in several workers: `Loop`, `Vmap`."""

    @property
    def device(self) -> str: ...

    @property
    def threads(self) -> int | None: ...

    @property
    def rows_at_once(self) -> int: ...

    def groups(self, policies: Sequence[Policy]) -> list[list[int]]: ...

    def kernel(self, setup: Setup) -> Kernel: ...


def check_inner(inner: Any, outer: str) -> None:
    """Refuse what has no kernel: a name, a class, an engine that has workers itself."""
    if isinstance(inner, type) or not isinstance(inner, Inner):
        shown = inner.__name__ if isinstance(inner, type) else repr(inner)
        raise RecipeError(
            f"inner={shown} cannot work in a worker, which is one process. Use {outer}(inner=Loop()) or "
            f"{outer}(inner=Vmap()), with more workers."
        )


def for_a_worker(inner: Inner, **changes: Any) -> Any:
    """The engine as a worker has it: with one thread if it does not say how many."""
    return replace(inner, threads=inner.threads or 1, **changes)  # type: ignore[type-var]


@contextmanager
def sending(where: str) -> Iterator[None]:
    """Say what is wrong with a task that cannot be pickled."""
    try:
        yield
    except EngineError:  # there is no memory for it, say
        raise
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise EngineError(
            f"the task cannot be sent to {where}: {error}. Data, network and loss are pickled; open files, locks, "
            f"generators and connections cannot be. Build them inside make_model or the function that returns the "
            f"batches, or use engine='loop' or 'vmap', which need no other process."
        ) from error
