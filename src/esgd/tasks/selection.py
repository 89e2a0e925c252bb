"""What selection goes by: the loss, a metric of the fitness split, or a function of the network."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from esgd.errors import TaskError, did_you_mean


def checked_selection(
    select: str | None, mode: str, metrics: Mapping[str, object], *, own: bool
) -> tuple[str, str] | None:
    """`select` and `mode` of a task, refused where they mean nothing; None for the loss."""
    if mode not in ("min", "max"):
        raise TaskError(
            f"mode={mode!r} is neither 'min' nor 'max': whether the metric of select= is better low or high."
        )
    if select is None:
        if mode == "max":
            raise TaskError("mode='max' is for select=, which names a metric. A loss is always minimised.")
        return None
    if select not in metrics:
        raise TaskError(
            f"select={select!r} is not among the metrics of outputs and targets. {did_you_mean(select, metrics)} Give "
            f"it in metrics=, as a function of (output, target)."
        )
    if own:
        raise TaskError(f"select={select!r} needs a fitness split, but fitness= is a function of your own. Use one.")
    return select, mode


def is_own_fitness(fitness: Any) -> bool:
    """A function of one argument, the network, is a fitness; one without arguments returns batches."""
    if not callable(fitness) or isinstance(fitness, nn.Module | tuple):
        return False
    try:
        parameters = inspect.signature(fitness).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) > 1:
        raise TaskError(
            f"fitness={fitness!r} takes {len(required)} arguments. A fitness of your own takes the network and "
            f"returns a number to minimise; a function without arguments returns batches."
        )
    return len(required) == 1
