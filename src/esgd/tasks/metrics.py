"""What is measured of a network on a split, and of the network alone.

| a metric is …                                     | it is given                     | memory                         |
|---------------------------------------------------|---------------------------------|--------------------------------|
| a function of (output, target)                    | the whole split at once         | all outputs, at most 1 GiB     |
| the same in `averaged(…)`, such as `error_rate`   | batch by batch, then the mean   | one batch                      |
| an object with `reset`, `update(output, target)`  | batch by batch, as it wants     | what it keeps                  |
| and `compute`, as torchmetrics have               |                                 |                                |
| a function of one argument                        | the network alone, in eval mode | what it keeps                  |

A function of the whole split, or `compute`, may return a dict: its numbers are metrics under their own names, which
no other metric may have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from esgd.errors import TaskError, shown

OfOutputs = Callable[[Any, Any], Any]
"""Of (output, target)."""

OfNetwork = Callable[[nn.Module], Any]
"""Of the network alone, which is in eval mode, without gradients."""

M = TypeVar("M", bound=Callable[..., Any])


@runtime_checkable
class Accumulates(Protocol):
    """A metric that takes a split batch by batch. torchmetrics are such."""

    def reset(self) -> Any: ...

    def update(self, output: Any, target: Any, /) -> Any: ...

    def compute(self) -> Any: ...


@runtime_checkable
class Described(Protocol):
    """A metric of the network with data of its own: what `describe()` returns becomes part of the run's identity."""

    def __call__(self, network: nn.Module, /) -> Any: ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Metrics:
    """By name: those of a split, and those of the network."""

    of_split: Mapping[str, OfOutputs | Accumulates] = field(default_factory=dict)
    of_network: Mapping[str, OfNetwork] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return {name: metric.describe() for name, metric in self.of_network.items() if isinstance(metric, Described)}


def averaged(metric: M) -> M:
    """Mark a function of (output, target) as a mean over samples: it is taken batch by batch, weighted by their sizes.

    No outputs are kept. For what is no mean over samples, such as an F1 score, the result would be wrong.
    """
    try:
        vars(metric)["averaged"] = True
    except TypeError as error:
        raise TaskError(f"averaged({metric!r}): it cannot be marked. Write a function around it.") from error
    return metric


def is_averaged(metric: object) -> bool:
    """Whether it was marked by `averaged`."""
    return bool(getattr(metric, "averaged", False))


def sorted_metrics(metrics: Mapping[str, Any]) -> Metrics:
    """Tell the kinds apart by what they can be called with; refuse by name what is none."""
    if not callable(getattr(metrics, "items", None)):  # a MetricCollection of torchmetrics is no Mapping
        raise TaskError(
            f"metrics={shown(metrics)} is a {type(metrics).__name__}, in which a metric has no name. A history "
            f"has metrics by name. Give a dict: metrics={{'error': error_rate}}."
        )
    of_split, of_network = dict[str, OfOutputs | Accumulates](), dict[str, OfNetwork]()
    for name, metric in metrics.items():
        accumulates = isinstance(metric, Accumulates) and not isinstance(metric, type)
        if name == "loss" or not (callable(metric) or accumulates):
            raise TaskError(
                f"metrics[{name!r}]={metric!r} cannot be used. A metric is a function of (output, target), or of the "
                f"network; 'loss' is always among the test metrics and cannot be given again."
            )
        if accumulates or _takes(metric, 2):
            of_split[name] = metric
        elif _takes(metric, 1):
            of_network[name] = metric
        else:
            raise TaskError(
                f"metrics[{name!r}]={metric!r} can be called neither with (output, target) nor with the network. "
                f"Write a function of two arguments, or of one."
            )
    return Metrics(of_split, of_network)


@averaged
def error_rate(output: Tensor, target: Tensor) -> Tensor:
    """The share of wrong answers of a classifier: a metric."""
    return (output.argmax(dim=1) != target).double().mean()


def measured(name: str, metric: Callable[..., Any], *arguments: Any) -> Any:
    """What a metric returns; an exception that it raises keeps its type, with a note that names the metric."""
    try:
        return metric(*arguments)
    except Exception as error:
        error.add_note(f"Raised by the metric {name!r} of the task. Call it by hand on one batch to see why.")
        raise


def scalar(value: Any, whose: str, *, name: str | None = None) -> Tensor:
    """A number as a float64 tensor, or an error that says which function returned what, and for which `name` of a
    dict."""
    try:
        return torch.as_tensor(value, dtype=torch.float64).reshape(())
    except (TypeError, ValueError, RuntimeError) as error:
        raise TaskError(
            f"{whose} returned {value!r}{'' if name is None else f' for {name!r}'}, which is not one number. Return a "
            f"float or a tensor with one."
        ) from error


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:
        pass  # some builtin functions do not tell
    return True
