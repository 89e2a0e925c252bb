"""`Vmap`: many networks in one batched computation."""

from esgd.engines.vmap.vmap import Vmap

__all__ = ["Vmap"]
