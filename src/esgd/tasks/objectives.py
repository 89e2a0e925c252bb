"""How a loss is taken: of (output, target), of (model, batch), or by the model itself.

The names of its parameters tell a loss of (model, batch) from one of (output, target): its first parameter is called
`model`, `module`, `network` or `net`. `OfBatch(loss)` says it for a function with other names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn

from esgd._limits import shortage
from esgd.errors import EsgdError, TaskError, did_you_mean
from esgd.protocols import Batch
from esgd.tasks.batch_forms import BatchForm, call_by_name
from esgd.tasks.losses import Loss
from esgd.tasks.soft_targets import soft_loss

BY_MODEL = "model"
"""The word for a network that returns its own loss."""

MODELS = ("model", "module", "network", "net")
TARGETS = ("target", "targets", "label", "labels", "y", "y_true")
BATCHES = ("batch",)


class NoOutput:
    """What a loss of (model, batch) has for metrics if it returns the loss alone."""


class Objective(Protocol):
    """A loss as a function of network and batch."""

    @property
    def loss(self) -> Any:
        """What the user gave."""
        ...

    def __call__(self, network: nn.Module, batch: Batch, form: BatchForm) -> tuple[Any, Any]:
        """The loss, a mean over the batch or one value per sample, and the output that metrics are given."""
        ...

    def output(self, network: nn.Module, batch: Batch, form: BatchForm) -> Any:
        """The output alone."""
        ...


@dataclass(frozen=True, eq=False)
class OfOutput:
    """A loss of (output, target)."""

    loss: Loss

    def __call__(self, network: nn.Module, batch: Batch, form: BatchForm) -> tuple[Any, Any]:
        output = form.output(network, batch)
        return self.of(output, batch, form), output

    def of(self, output: Any, batch: Batch, form: BatchForm) -> Any:
        """The loss of an output for a batch."""
        try:
            return soft_loss(self.loss, output, form.target(batch))
        except EsgdError:
            raise
        except Exception as error:
            note_loss(error, self.loss)
            raise

    def output(self, network: nn.Module, batch: Batch, form: BatchForm) -> Any:
        return form.output(network, batch)


@dataclass(frozen=True, eq=False)
class OfBatch:
    """A loss of (model, batch): it calls the network itself, so a batch may be anything.

    It returns the loss, or (loss, output); metrics are given that output, and the target of the batch.

    >>> OfBatch(lambda net, graphs: net(graphs).square().mean()).loss.__name__
    '<lambda>'
    """

    loss: Callable[[nn.Module, Batch], Any]

    def __call__(self, network: nn.Module, batch: Batch, form: BatchForm) -> tuple[Any, Any]:
        try:
            found = self.loss(network, batch)
        except EsgdError:
            raise
        except Exception as error:
            note_loss(error, self.loss)
            raise
        return found if isinstance(found, tuple) and len(found) == 2 else (found, NoOutput())

    def output(self, network: nn.Module, batch: Batch, form: BatchForm) -> Any:
        return self(network, batch, form)[1]


@dataclass(frozen=True)
class OfModel:
    """The loss that a network returns when it is given a whole batch, by name: networks of Hugging Face do.

    Metrics are given its `logits`, or all that it returns if it has none.
    """

    loss: str = BY_MODEL

    def __call__(self, network: nn.Module, batch: Batch, form: BatchForm) -> tuple[Any, Any]:
        if not isinstance(batch, Mapping):
            raise TaskError(
                f"a batch is a {type(batch).__name__}, but loss='model' gives the network what the batch has by name. "
                f"Use data of dicts, or a loss of (model, batch)."
            )
        returned = call_by_name(network, batch)
        loss = _part(returned, "loss")
        if not isinstance(loss, Tensor):
            raise TaskError(
                f"loss='model', but {type(network).__name__} returned {type(returned).__name__} without a loss. "
                f"Networks of Hugging Face return one if the batch has their target, mostly 'labels'; this one has "
                f"{', '.join(map(repr, batch))}. Or use a loss of (output, target) or (model, batch)."
            )
        return loss, self.shown(returned)

    def shown(self, returned: Any) -> Any:
        """What of it metrics are given."""
        logits = _part(returned, "logits")
        return returned if logits is None else logits

    def output(self, network: nn.Module, batch: Batch, form: BatchForm) -> Any:
        return self(network, batch, form)[1]


def objective(loss: Any) -> Objective:
    """The kind of loss that a user has passed; refuses by name what can be two of them."""
    if isinstance(loss, OfBatch | OfModel):
        return loss
    if isinstance(loss, str):
        if loss != BY_MODEL:
            raise TaskError(
                f"loss={loss!r} is not known. {did_you_mean(loss, [BY_MODEL])} The one word is 'model', for networks "
                f"that return their loss; otherwise pass a function, for example F.cross_entropy."
            )
        return OfModel()
    if isinstance(loss, type):
        raise TaskError(f"loss={loss.__name__} is a class. Pass an instance of it: {loss.__name__}().")
    if not callable(loss):
        raise TaskError(f"loss={loss!r} cannot be called. Pass a function, for example F.cross_entropy as the loss.")
    _check_reduction(loss)
    first, second = _parameters(loss)
    if (first in MODELS and second in TARGETS) or (first not in MODELS and second in BATCHES):
        raise TaskError(
            f"the loss takes ({first}, {second}), and a loss is of (output, target) or of (model, batch). Rename its "
            f"parameters, or write esgd.tasks.OfBatch(…) around it if it is given the network and the batch."
        )
    return OfBatch(loss) if first in MODELS else OfOutput(loss)


def checked_values(value: Any, samples: int) -> Tensor:
    """What a loss has returned for a batch, as a scalar mean or (samples,)."""
    if not isinstance(value, Tensor):
        raise TaskError(
            f"the loss returned {type(value).__name__} {value!r}. It must return a torch tensor that gradients can "
            f"flow through: a scalar mean, or one value per sample."
        )
    if value.is_complex():
        raise TaskError(
            f"the loss is complex: {value.dtype}. Individuals are compared by their loss, and complex numbers have "
            f"no order. Take its .abs() or .real."
        )
    if value.dim() == 0:
        return value
    if len(value) == samples:
        return value.reshape(samples, -1).mean(dim=1)
    raise TaskError(
        f"the loss returned a tensor of shape {tuple(value.shape)} for a batch of {samples}. It must be a scalar mean "
        f"over the batch, or have one value per sample in its first dimension."
    )


def note_loss(error: Exception, loss: Any) -> None:
    """Note on an exception that the task's loss raised it. Its type stays."""
    if not shortage(error):  # the engine says what the machine has too little of
        error.add_note(f"Raised in the loss of the task, {name_of(loss)}. Call it by hand on one batch to see why.")


def name_of(function: Any) -> str:
    """What a loss or fitness goes by in a manifest."""
    if isinstance(function, str):
        return function
    if isinstance(function, partial):
        keywords = ", ".join(f"{name}={value}" for name, value in sorted(function.keywords.items()))
        return f"{name_of(function.func)}({keywords})"
    if isinstance(function, nn.Module):
        return repr(function)
    return str(getattr(function, "__qualname__", type(function).__name__))


def _part(returned: Any, name: str) -> Any:
    """An item or attribute of what a network has returned."""
    return returned.get(name) if isinstance(returned, Mapping) else getattr(returned, name, None)


def _parameters(loss: Callable[..., Any]) -> tuple[str, str]:
    """The names of its first two positional parameters; empty where there is none, or where it does not tell."""
    try:
        known = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).parameters.values()
    except (TypeError, ValueError):
        return "", ""
    names = [each.name for each in known if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    first, second, *_ = *names, "", ""
    return first, second


def _check_reduction(loss: Any) -> None:
    reduction = loss.keywords.get("reduction") if isinstance(loss, partial) else getattr(loss, "reduction", None)
    if reduction == "sum":
        raise TaskError(
            "the loss has reduction='sum', so it would grow with the batch. Fitness and SGD need a mean over the "
            "batch, or one value per sample. Use reduction='mean' or 'none'."
        )
