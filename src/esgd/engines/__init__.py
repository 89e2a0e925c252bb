"""Engines: where the work is done. `Loop` is the meaning; every faster engine must equal it."""

from esgd.engines.choose import choose
from esgd.engines.loop import Loop
from esgd.engines.pool import Pool
from esgd.engines.ray import Ray
from esgd.engines.vmap import Vmap

__all__ = ["Loop", "Pool", "Ray", "Vmap", "choose"]
