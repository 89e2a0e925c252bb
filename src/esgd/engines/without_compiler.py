"""torch's optimizers without its compiler.

Their methods import it when they are first called, which takes as long as to import torch itself: two seconds in every
new process, each worker's too. Nothing is compiled in an SGD step, so they are called without it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

COMPILER = "torch._dynamo"
MARK = "__dynamo_disable"
"""Where torch keeps the version of a method that its compiler leaves alone; it imports the compiler to make one."""
MARKED = [inspect.unwrap(getattr(Optimizer, name)) for name in ("add_param_group", "state_dict", "load_state_dict")]

Closure = Callable[[], Tensor]


@contextmanager
def without_compiler() -> Iterator[None]:
    """Optimizers can be built, and their state read and written, without an import of the compiler.

    >>> with without_compiler():
    ...     optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    """
    plain = [] if COMPILER in sys.modules else [method for method in MARKED if not hasattr(method, MARK)]
    for method in plain:
        setattr(method, MARK, method)
    try:
        yield
    finally:
        for method in plain:
            if getattr(method, MARK, None) is method:
                delattr(method, MARK)


def plain_step(optimizer: Optimizer) -> Callable[[Closure | None], object]:
    """What `optimizer.step` does, without what it does for the compiler and the profiler. An optimizer that is not
    torch's own, or that has hooks, is called as it is."""
    own = type(optimizer).__module__.startswith("torch.optim") and not optimizer.defaults.get("differentiable")
    hooks = (
        *(optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks),
        *(_global_optimizer_pre_hooks, _global_optimizer_post_hooks),
    )
    if not own or any(hooks):
        return optimizer.step  # type: ignore[return-value]
    step = inspect.unwrap(type(optimizer).step)

    @torch.no_grad()
    def stepped(closure: Closure | None) -> object:
        return step(optimizer, closure)

    return stepped
