"""The command line."""

from esgd.cli.app import main

__all__ = ["main"]
