"""`Ray`: the same run on a cluster."""

from esgd.engines.ray.ray import Ray

__all__ = ["Ray"]
