"""A function recorded once and played back: the same kernels without Python's and `vmap`'s share of every step.

`torch.fx` runs a function on real tensors and writes down each operation. For small networks more than half the time of
a step is spent finding out what to do next; played back, that is gone, and no compiler is needed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from esgd.engines.attributes import AttributeSnapshot
from esgd.engines.compiled_code import compile_function, compiling, refused_by_compiler
from esgd.engines.computing import Computing
from esgd.engines.onednn import by_onednn
from esgd.engines.warning import warn
from esgd.randomness import global_randomness

VIEWS = {
    torch.ops.aten.expand.default,
    torch.ops.aten.view.default,
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.alias.default,
    torch.ops.aten.detach.default,
}

REMEMBERED = 64
"""Recordings that are made; each belongs to one shape of batch and one setting."""


class Traced:
    """A function that is recorded when it is called with the same shapes for the second time.

    It is recorded twice. If the two differ, or Python's or NumPy's generator or a number that `module` keeps has moved,
    then its Python changes its mind, and it is called as it is; so it is if it cannot be recorded. Random *tensors*
    (dropout) are operations like all others, new in each call. What rounds differently, compiled or multiplied by
    oneDNN, is recorded at the first call: a fitness must not change its last bits on the way.
    """

    def __init__(self, function: Callable[..., Any], module: nn.Module, computing: Computing) -> None:
        self._function, self._module, self._computing = function, module, computing
        self._recordings = dict[Hashable, Callable[..., Any] | None]()

    def __call__(self, key: Hashable, *arguments: Any) -> Any:
        """Call it; `key` stands for all arguments but the last, the batch, whose form is looked at."""
        key = (key, *form(arguments[-1]))
        try:
            known = key in self._recordings
        except TypeError:  # the batch has a value without a hash, such as an array of NumPy
            return self._function(*arguments)
        if not known and len(self._recordings) >= REMEMBERED:
            return self._function(*arguments)  # so many shapes: none of them comes often
        if self._computing.compile and not known:
            return self._compiled(key, arguments)
        if not known and not self._computing.onednn:
            self._recordings[key] = None
        elif self._recordings.get(key) is None:
            self._recordings[key] = self._record(arguments)
        recording = self._recordings[key]
        return self._function(*arguments) if recording is None else recording(*arguments)

    def _compiled(self, key: Hashable, arguments: tuple[Any, ...]) -> Any:
        """The first call. What cannot be compiled is played back as it was recorded."""
        recorded = self._record(arguments)
        on_cpu = all(leaf.is_cpu for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor))
        self._recordings[key] = compiled = compile_function(recorded, on_cpu=on_cpu)
        try:
            with compiling(recorded.code if isinstance(recorded, torch.fx.GraphModule) else ""):
                return compiled(*arguments)
        except Exception as error:
            if not refused_by_compiler(error):
                raise
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            warn(f"the compiler failed, so a part of the run is not compiled and slower: {why}")
            self._recordings[key] = recorded
        return recorded(*arguments)

    def _record(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        kept = AttributeSnapshot(self._module)
        with global_randomness(0):
            before = _python_state(), kept.stamp()
            try:
                first, second = (_recorded(self._function, arguments) for _ in range(2))
                steady = first.code == second.code and (_python_state(), kept.stamp()) == before
            except Exception:  # noqa: BLE001  # whatever a recorder cannot follow; a real error comes again when called
                return self._function
            finally:
                kept.restore()
        if not steady:
            return self._function
        return by_onednn(first) if self._computing.onednn else first


def _recorded(function: Callable[..., Any], arguments: tuple[Any, ...]) -> torch.fx.GraphModule:
    """One recording; it really runs, so it is given copies of what it may change.

    The shapes of all results are written down in one context. Without it torch makes one for each result, which takes
    half of the time.
    """
    copies = pytree.tree_map(lambda item: item.clone() if isinstance(item, Tensor) else item, arguments)
    with tracing(TracingContext(FakeTensorMode())):
        return _without_idle_views(make_fx(function)(*copies))


def _python_state() -> tuple[Any, ...]:
    """Where the generators stand that are not torch's."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), repr(numpy.random.get_state(legacy=False)) if numpy else ""


def _without_idle_views(recording: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Leave out views and expansions to the shape that a tensor has already: a quarter of all operations."""
    for node in recording.graph.nodes:
        if node.target in VIEWS and node.meta["val"].shape == node.args[0].meta["val"].shape:
            node.replace_all_uses_with(node.args[0])
            recording.graph.erase_node(node)
    recording.recompile()
    return recording


def form(batch: Any) -> list[Hashable]:
    """What a recording depends on: structure, shapes, dtypes, strides; other values by themselves."""
    leaves, structure = pytree.tree_flatten(batch)
    forms = [(leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return [structure, *forms]
