"""What a network keeps outside its parameters and buffers: numbers, lists, tensors and generators in plain attributes.

They are no part of an individual, and one network on a device serves many individuals, one after the other. So they
begin every epoch, and every part of a fitness, as make_model and the task's `prepare` left them. What was done before,
and by which worker, cannot matter.
"""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils import _pytree as pytree

from esgd.randomness import Seeds, handle

OWN = frozenset(vars(nn.Module())) - {"training"}
"""What every module has: its parameters, buffers, layers and hooks."""


class AttributeSnapshot:
    """The plain attributes of every layer as they are now, constant buffers, and which parameters are frozen.

    Lists, dicts, sets, tensors and generators are searched and put back in place; other objects are left alone.
    """

    def __init__(self, module: nn.Module) -> None:
        layers = list(module.modules())
        self._layers = [(vars(layer), _plain(vars(layer)), len(vars(layer))) for layer in layers]
        self._constants = [(layer._buffers, _constants(layer)) for layer in layers if layer._non_persistent_buffers_set]
        self._frozen = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
        self._undo, self._generators = list[Callable[[], Any]](), list[Any]()
        constants = [buffer for _, kept in self._constants for buffer in kept.values() if buffer is not None]
        known = {id(each) for each in (*layers, *module.parameters(), *module.buffers())} - set(map(id, constants))
        self._remember(constants, known)
        for _, kept, _ in self._layers:
            self._remember(kept.values(), known)

    def _remember(self, values: Iterable[Any], known: set[int]) -> None:
        for value in values:
            if id(value) in known:
                continue
            known.add(id(value))
            if generator := handle(value):
                self._generators.append(generator)
                self._undo.append(partial(generator.restore, generator.state()))
            elif isinstance(value, Tensor):
                if not (value.is_inference() or is_functorch_wrapped_tensor(value)):
                    self._undo.append(_Content(value).restore)
            elif isinstance(value, list | deque | dict | set):
                self._undo.append(partial(_refill, value, copy.copy(value)))
                self._remember(list(value.values() if isinstance(value, dict) else value), known)
            elif isinstance(value, tuple):
                self._remember(value, known)

    def restore(self) -> None:
        """Put everything back."""
        for attributes, kept, size in self._layers:
            if len(attributes) != size:
                for name in attributes.keys() - kept.keys() - OWN:
                    del attributes[name]
            attributes.update(kept)
        for buffers, constants in self._constants:
            buffers.update(constants)
        for parameter, requires_grad in self._frozen:
            if parameter.requires_grad is not requires_grad:
                parameter.requires_grad_(requires_grad)
        for undo in self._undo:
            undo()

    def reseed(self, seeds: Seeds) -> None:
        """Give every generator a seed of its own, as the global generators are given theirs."""
        for number, generator in enumerate(self._generators):
            generator.seed(seeds.integer(number))

    def leaked(self) -> list[tuple[dict[str, Any], str, Any]]:
        """The attributes that hold tensors of a `torch.func` transform which is over: of which layer, name, value."""
        found = [(each, name, value) for each, _, _ in self._layers for name, value in _plain(each).items()]
        return [
            (each, name, value if isinstance(value, Tensor) else copy.copy(value))
            for each, name, value in found
            if _transformed(value)
        ]

    def stamp(self) -> list[Any]:
        """Where numbers and generators stand now: what changes there, a recording of operations does not see."""
        layers = [_outline(_plain(attributes)) for attributes, _, _ in self._layers]
        return [layers, [pickle.dumps(generator.state()) for generator in self._generators]]


class ModuleModes:
    """A network that is put into training and into evaluation mode, and is the same each time."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self._left, self._known = module, AttributeSnapshot(module), dict[bool, AttributeSnapshot]()

    def enter(self, *, training: bool) -> AttributeSnapshot:
        if training not in self._known:
            self._left.restore()
            self.module.train(training)
            self._known[training] = AttributeSnapshot(self.module)
        self._known[training].restore()
        return self._known[training]


class _Content:
    """What is in a tensor; torch counts how often it was written into."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.kept, self.version = tensor, tensor.detach().clone(), tensor._version

    @torch.no_grad()
    def restore(self) -> None:
        if self.tensor._version != self.version:
            self.tensor.copy_(self.kept)
            self.version = self.tensor._version


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in OWN}


def _constants(layer: nn.Module) -> dict[str, Tensor | None]:
    return {name: layer._buffers[name] for name in layer._non_persistent_buffers_set}


def _refill(container: Any, kept: Any) -> None:
    container.clear()
    (container.update if isinstance(container, dict | set) else container.extend)(kept)


def _transformed(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return any(isinstance(leaf, Tensor) and is_functorch_wrapped_tensor(leaf) for leaf in leaves)


def _outline(value: Any) -> Any:
    """A value without its tensors, to be compared."""
    if isinstance(value, Mapping):
        return [(name, _outline(item)) for name, item in value.items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_outline(item) for item in value]
    return value if isinstance(value, bool | int | float | complex | str | bytes | None) else type(value)
