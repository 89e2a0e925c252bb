"""One pass over a split: every metric is given what it asks for, and outputs are kept only for those that need all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from esgd.errors import TaskError
from esgd.tasks.metrics import Accumulates, OfOutputs, is_averaged, measured, scalar

KEPT_BYTES = 1 << 30
"""Outputs and targets of a split that are kept at most, for metrics that see all of them."""


class Measurement:
    """Metrics of one network on one split, batch by batch; `values` has the results.

    `taken` are names that numbers of a dict may not have, because other metrics have them.
    """

    def __init__(self, metrics: Mapping[str, OfOutputs | Accumulates], taken: Iterable[str] = ()) -> None:
        self._accumulating = {name: each for name, each in metrics.items() if isinstance(each, Accumulates)}
        functions: dict[str, Any] = {name: each for name, each in metrics.items() if name not in self._accumulating}
        self._averaged = {name: each for name, each in functions.items() if is_averaged(each)}
        self._whole = {name: each for name, each in functions.items() if name not in self._averaged}
        self._names, self._samples = list(metrics), 0
        self._taken = {"loss", *metrics, *taken}
        self._sums: dict[str, Any] = dict.fromkeys(self._averaged, 0.0)
        self._outputs, self._targets, self._bytes = list[Any](), list[Any](), 0
        for name, metric in self._accumulating.items():
            measured(name, metric.reset)

    def add(self, output: Any, target: Any, samples: int) -> None:
        """Take a batch into account."""
        self._samples += samples
        for name, metric in self._averaged.items():
            self._sums[name] = self._sums[name] + scalar(measured(name, metric, output, target), _whose(name)) * samples
        for name, accumulating in self._accumulating.items():
            measured(name, accumulating.update, output, target)
        if self._whole:
            self._keep(output, target)

    def values(self) -> dict[str, Tensor]:
        """The metrics by name, each a float64 scalar. A metric that returns a dict of numbers is several."""
        found: dict[str, Any] = {name: total / self._samples for name, total in self._sums.items()}
        found |= {name: measured(name, each.compute) for name, each in self._accumulating.items()}
        if self._whole:
            output, target = _joined(self._outputs, self._first), _joined(self._targets, self._first)
            found |= {name: measured(name, metric, output, target) for name, metric in self._whole.items()}
        values = dict[str, Tensor]()
        for given in self._names:
            for name, value in _several(given, found[given]).items():
                if name in values or (name != given and name in self._taken):
                    raise TaskError(
                        f"{_whose(given)} returned a number for {name!r}, which is the name of another one. Return it "
                        f"under another name."
                    )
                values[name] = scalar(value, _whose(given), name=None if name == given else name)
        return values

    @property
    def _first(self) -> str:
        return next(iter(self._whole))

    def _keep(self, output: Any, target: Any) -> None:
        output, target = (pytree.tree_map(_on_cpu, each) for each in (output, target))
        leaves = pytree.tree_leaves((output, target))
        self._bytes += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        if self._bytes > KEPT_BYTES:
            raise TaskError(
                f"{_whose(self._first)} is given all outputs of a split at once, and they take more than "
                f"{KEPT_BYTES / 1e9:.1f} GB. If it is a mean over samples, write averaged(…) around it. Otherwise "
                f"give an object with reset, update(output, target) and compute, which keeps only what it needs."
            )
        self._outputs.append(output)
        self._targets.append(target)


def _joined(batches: list[Any], name: str) -> Any:
    """Batches as one, along the first dimension of their tensors."""
    try:
        return pytree.tree_map(lambda *leaves: torch.cat(leaves), *batches)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TaskError(
            f"{_whose(name)} is given all outputs and targets of a split at once, and these batches cannot be joined: "
            f"{error}. Write averaged(…) around it, or give an object with reset, update(output, target) and compute."
        ) from error


def _several(given: str, found: Any) -> dict[str, Any]:
    """What a metric has returned, by name."""
    return {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else {given: found}


def _on_cpu(leaf: Any) -> Any:
    return leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf


def _whose(name: str) -> str:
    return f"the metric {name!r}"
