"""What a batch consists of: the inputs of a network, the target, and how many samples there are.

| a batch is …         | the network is called as | the target is     | its samples: the first of these               |
|----------------------|--------------------------|-------------------|-----------------------------------------------|
| a tuple or list      | `network(*inputs)`       | the last item     | length of the target                          |
| a dict               | `network(**inputs)`      | `batch["labels"]` | entry `num_graphs` or `batch_size`; length of |
|                      |                          |                   | the target; one length of all tensors         |
| an object, as graphs | `network(batch)`         | `batch.y`         | `num_graphs`, `batch_size`; length of the     |
|                      |                          |                   | target; `len(batch)`                          |

Where none of them tells, as in a dict without a target whose tensors differ in length, the batch is refused.
`Supervised(target=…)` gives the target of a dict or an object another name, and `batch_length=` is a function of a
batch where its samples cannot be counted like this.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from esgd._validation import is_count
from esgd.errors import TaskError, did_you_mean
from esgd.protocols import Batch
from esgd.tasks.soft_targets import plain_target

IN_DICTS, IN_OBJECTS = "labels", "y"
"""How targets are called by those who have such batches: Hugging Face, PyTorch Geometric."""

COUNTED = ("num_graphs", "batch_size")
"""How the number of samples is called: PyTorch Geometric; DGL, tensordict."""


@dataclass(frozen=True)
class BatchForm:
    """How the batches of a task are read.

    >>> form = BatchForm()
    >>> form.size({"x": torch.zeros(3, 2), "labels": torch.zeros(3)}), form.target((torch.zeros(2), "last"))
    (3, 'last')
    """

    target_name: str | None = None
    length: Callable[[Batch], int] | None = None

    def output(self, network: nn.Module, batch: Batch) -> Any:
        """What the network answers to the inputs of a batch."""
        if isinstance(batch, Mapping):
            return call_by_name(network, {name: item for name, item in batch.items() if name != self._name(batch)})
        if isinstance(batch, tuple | list):
            return network(*_checked(batch)[:-1])
        self._name(batch)
        return network(batch)

    def target(self, batch: Batch) -> Any:
        """What the output is compared with."""
        if isinstance(batch, tuple | list):
            return _checked(batch)[-1]
        name = self._name(batch)
        return batch[name] if isinstance(batch, Mapping) else getattr(batch, name)

    def inputs(self, batch: Batch) -> tuple[Any, ...]:
        """Everything else."""
        if isinstance(batch, Mapping):
            return tuple(item for name, item in batch.items() if name != self._name(batch))
        return tuple(_checked(batch)[:-1]) if isinstance(batch, tuple | list) else (batch,)

    def size(self, batch: Batch) -> int:
        """How many samples a batch has."""
        if self.length is not None:
            counted = self.length(batch)
            if not is_count(counted):
                raise TaskError(
                    f"batch_length returned {counted!r} for a batch. It must return how many samples it has."
                )
            return counted
        found = self._samples(batch)
        if found is None:
            raise TaskError(
                f"it is not known how many samples a {_described(batch)} has{_lengths_of(batch)}. Give "
                f"batch_length=…, a function of a batch that returns their number."
            )
        return found

    def _samples(self, batch: Batch) -> int | None:
        if isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence):
            return _of_tuple(batch)
        if isinstance(batch, Mapping):
            return _of_mapping(batch, self.target_name or IN_DICTS)
        if isinstance(batch, Tensor | PackedSequence):
            return _length(batch)
        known = _of_target(batch, getattr(batch, self.target_name or IN_OBJECTS, None))
        return _length(batch) if known is None else known

    def _name(self, batch: Batch) -> str:
        """The name of the target, if the batch has it."""
        if isinstance(batch, Mapping):
            name, known = self.target_name or IN_DICTS, [str(each) for each in batch]
            if name in batch:
                return name
        else:
            name = self.target_name or IN_OBJECTS
            if hasattr(batch, name):
                return name
            known = sorted(each for each in getattr(batch, "__dict__", {}) if not each.startswith("_"))
        raise TaskError(
            f"a batch is a {_described(batch)}, and has no target {name!r}. {did_you_mean(name, known)} Use target=… "
            f"to name it, or a loss of (model, batch), which finds it itself. Other batches are (*inputs, target): the "
            f"last item is the target."
        )


def call_by_name(network: nn.Module, inputs: Mapping[str, Any]) -> Any:
    """The output for inputs that the network takes by their names."""
    try:
        return network(**inputs)
    except TypeError as error:
        unknown = _not_taken(network, inputs)
        if not unknown:
            raise
        raise TaskError(
            f"the batches have {', '.join(map(repr, unknown))}, and {type(network).__name__}.forward has no argument "
            f"of that name. Leave it out of the data (of a Hugging Face dataset: remove_columns), or use a loss of "
            f"(model, batch), which calls the network itself."
        ) from error


def _not_taken(network: nn.Module, inputs: Mapping[str, Any]) -> list[str]:
    parameters = inspect.signature(network.forward).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return []
    return [str(name) for name in inputs if name not in parameters]


def _of_mapping(batch: Mapping[Any, Any], target: str) -> int | None:
    """What it says itself; those of the target; the one length of all tensors or, where there are none, of the rest."""
    if (known := _of_target(batch, batch.get(target))) is not None:
        return known
    lengths = _lengths(batch)
    return next(iter(lengths.values())) if len(set(lengths.values())) == 1 else None


def _of_target(batch: Any, target: Any) -> int | None:
    """What a dict or an object says itself; those of its target, which may be a dict or a list, too."""
    told = _told(batch)
    return _length(plain_target(target)) if told is None else told


def _lengths(batch: Mapping[Any, Any]) -> dict[str, int]:
    """Of its tensors, by name; of everything that has a length where there is no tensor that has one."""
    known = {str(name): n for name, item in batch.items() if (n := _length(item)) is not None}
    tensors = {str(name) for name, item in batch.items() if isinstance(item, Tensor)}
    return {name: n for name, n in known.items() if name in tensors} or known


def _lengths_of(batch: Batch) -> str:
    """The lengths that contradict each other, for a sentence."""
    lengths = _lengths(batch) if isinstance(batch, Mapping) else {}
    return f": the lengths are {', '.join(f'{name} {n}' for name, n in lengths.items())}" if lengths else ""


def _of_tuple(batch: tuple[Any, ...] | list[Any]) -> int | None:
    """Those of the target; where that is a list, it may be one of samples or of tensors, which the inputs tell."""
    if not batch:
        return None
    target, first = plain_target(batch[-1]), batch[0]
    several = isinstance(target, tuple | list) and not isinstance(target, PackedSequence)
    if several and isinstance(first, Tensor) and first.dim():
        return len(first)
    return _length(target)


def _length(item: Any) -> int | None:
    if isinstance(item, Tensor | np.ndarray):
        return len(item) if item.ndim else None
    if isinstance(item, PackedSequence):
        return int(item.batch_sizes[0])
    if isinstance(item, Mapping):
        return _of_mapping(item, IN_DICTS)
    if (told := _told(item)) is not None:
        return told
    return len(item) if isinstance(item, Sized) and not isinstance(item, str) else None


def _told(item: Any) -> int | None:
    """How many samples a dict or an object says that it has."""
    for name in COUNTED:
        found = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        found = found[0] if isinstance(found, torch.Size) and len(found) else found
        if is_count(found):
            return int(found)
    return None


def _checked(batch: tuple[Any, ...] | list[Any]) -> tuple[Any, ...] | list[Any]:
    if len(batch) < 2:
        raise TaskError(
            f"a batch is a {_described(batch)}, but a loss of (output, target) needs (*inputs, target): the last item "
            f"is the target, the others go into the network. Return both, or use a loss of (model, batch)."
        )
    return batch


def _described(batch: Batch) -> str:
    kind = type(batch).__name__
    if isinstance(batch, Mapping):
        return f"{kind} of {', '.join(map(repr, batch)) or 'nothing'}"
    if isinstance(batch, tuple | list):
        return f"{kind} of {', '.join(type(item).__name__ for item in batch) or 'nothing'}"
    return kind
