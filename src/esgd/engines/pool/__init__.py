"""`Pool`: every core or GPU of one machine."""

from esgd.engines.pool.pool import Pool

__all__ = ["Pool"]
