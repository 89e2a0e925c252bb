"""`Ray`: the same run on a cluster."""

from esgd.engines.cluster.ray import Ray

__all__ = ["Ray"]
