"""`Pool`: every core or GPU of one machine."""

from esgd.engines.processes.pool import Pool

__all__ = ["Pool"]
