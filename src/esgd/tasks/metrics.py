"""What is measured on the split that selection never saw."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from esgd.errors import TaskError

Averaged = Callable[[Any, Any], Any]
"""Of (output, target): averaged over the samples of the test split."""

OfNetwork = Callable[[nn.Module], Any]
"""Of the network alone, which is in eval mode, without gradients: for what is no mean over samples."""


@runtime_checkable
class Described(Protocol):
    """A metric of the network with data of its own: what `describe()` returns becomes part of the run's identity."""

    def __call__(self, network: nn.Module, /) -> Any: ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Metrics:
    """Both kinds, by name."""

    averaged: Mapping[str, Averaged] = field(default_factory=dict)
    of_network: Mapping[str, OfNetwork] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return {name: metric.describe() for name, metric in self.of_network.items() if isinstance(metric, Described)}


def sorted_metrics(metrics: Mapping[str, Any]) -> Metrics:
    """Tell the two kinds apart by what they can be called with; refuse by name what is neither."""
    averaged, of_network = dict[str, Averaged](), dict[str, OfNetwork]()
    for name, metric in metrics.items():
        if name == "loss" or not callable(metric):
            raise TaskError(
                f"metrics[{name!r}]={metric!r} cannot be used. A metric is a function of (output, target), or of the "
                f"network; 'loss' is always among the test metrics and cannot be given again."
            )
        if _takes(metric, 2):
            averaged[name] = metric
        elif _takes(metric, 1):
            of_network[name] = metric
        else:
            raise TaskError(
                f"metrics[{name!r}]={metric!r} can be called neither with (output, target) nor with the network. "
                f"Write a function of two arguments, or of one."
            )
    return Metrics(averaged, of_network)


def error_rate(output: Tensor, target: Tensor) -> Tensor:
    """The share of wrong answers of a classifier: a metric."""
    return (output.argmax(dim=1) != target).double().mean()


def scalar(value: Any, whose: str) -> Tensor:
    """A number as a float64 tensor, or an error that says who returned what."""
    try:
        return torch.as_tensor(value, dtype=torch.float64).reshape(())
    except (TypeError, ValueError, RuntimeError) as error:
        raise TaskError(
            f"{whose} returned {value!r}, which is not one number. Return a float or a tensor with one."
        ) from error


def _takes(function: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    except ValueError:
        pass  # some builtin functions do not tell
    return True
