"""Tasks: data, loss and fitness. A task never sees an optimizer or a population."""

from esgd.tasks.supervised import Supervised, error_rate

__all__ = ["Supervised", "error_rate"]
