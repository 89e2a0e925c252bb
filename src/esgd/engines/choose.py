"""From what a user writes as `engine=` to an engine."""

from __future__ import annotations

from collections.abc import Callable

import torch

from esgd.engines.loop import Loop
from esgd.errors import RecipeError, did_you_mean
from esgd.protocols import Engine

SMALL = 200_000
"""Parameters below which one thread beats several: the tensors are too small to share."""


def choose(engine: str | Engine, parameters: int) -> Engine:
    """An engine by name ("auto", "loop") for a network of so many parameters, or the one that was passed.

    >>> choose("auto", parameters=4_810).threads
    1
    """
    if isinstance(engine, Engine):
        return engine
    if not isinstance(engine, str):
        raise RecipeError(
            f"engine={engine!r} is not an engine. Use 'auto', 'loop', or a value such as Loop(threads=1)."
        )
    known: dict[str, Callable[[], Engine]] = {"auto": lambda: suited_loop(parameters), "loop": Loop}
    if engine not in known:
        raise RecipeError(f"engine={engine!r} is not known. {did_you_mean(engine, known)}")
    return known[engine]()


def suited_loop(parameters: int) -> Loop:
    """The plain engine on the best device here, with as many threads as the network can use."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Loop(device=device, threads=1 if device == "cpu" and parameters < SMALL else None)
