"""Engines: where the work is done. `Loop` is the meaning; every faster engine must equal it."""

from esgd.engines.batched import Vmap
from esgd.engines.choose import choose
from esgd.engines.cluster import Ray
from esgd.engines.processes import Pool
from esgd.engines.sequential import Loop

__all__ = ["Loop", "Pool", "Ray", "Vmap", "choose"]
