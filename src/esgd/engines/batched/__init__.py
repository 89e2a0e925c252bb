"""`Vmap`: many networks in one batched computation."""

from esgd.engines.batched.vmap import Vmap

__all__ = ["Vmap"]
