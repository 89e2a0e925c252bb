"""Engines by the names the tables give them. The one place that knows how an engine is made or chosen."""

from __future__ import annotations

from collections.abc import Callable

from esgd import engines
from esgd.protocols import Engine, Load, Setup

MAKERS: dict[str, Callable[[], Engine]] = {
    "loop": lambda: engines.Loop(),
    "loop on one thread": lambda: engines.Loop(threads=1),
    "vmap": lambda: engines.Vmap(),
    "pool of loops": lambda: engines.Pool(inner=engines.Loop(threads=1)),
    "pool of vmaps": lambda: engines.Pool(inner=engines.Vmap(threads=1)),
}
OURS = (*MAKERS, "auto")
PAIRS: dict[str, Callable[[], Engine]] = {
    "pool of two": lambda: engines.Pool(inner=engines.Loop(threads=1), workers=2),
    "ray of two": lambda: engines.Ray(inner=engines.Loop(threads=1), workers=2),
}
"""Engines that are compared with one another and not with the rest."""
LONG = 100_000
"""Epochs of the run that "auto" is to choose for: so long that what an engine costs once, a compiler's minute for
example, does not count. It does not count in the ratios either, which leave out each side's first use; tables of whole
runs, start-up and all, tell "auto" the truth."""


def engine_named(name: str, setup: Setup, population: int, epochs: int = LONG) -> Engine:
    """The engine behind a name; "auto" is what `engine="auto"` chooses for such a run on this machine."""
    if name == "auto":
        return engines.choose("auto", setup, Load(population, epochs)).engine
    return {**MAKERS, **PAIRS}[name]()
