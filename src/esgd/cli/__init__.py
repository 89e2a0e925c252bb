"""The command line."""

from esgd.cli.ending import main

__all__ = ["main"]
