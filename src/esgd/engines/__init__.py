"""Engines: where the work is done. `Loop` is the meaning; every faster engine must equal it."""

from esgd.engines.choose import choose
from esgd.engines.loop import Loop

__all__ = ["Loop", "choose"]
