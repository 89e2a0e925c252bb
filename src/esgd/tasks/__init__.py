"""Tasks: data, loss and fitness. A task never sees an optimizer or a population."""

from esgd.tasks.supervised import Supervised

__all__ = ["Supervised"]
