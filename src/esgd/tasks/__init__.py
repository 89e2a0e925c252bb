"""Tasks: data, loss and fitness. A task never sees an optimizer or a population."""

from esgd.tasks.metrics import averaged, error_rate
from esgd.tasks.objectives import OfBatch
from esgd.tasks.scaled import scaled
from esgd.tasks.sources import Source, StackedSource, Tensors
from esgd.tasks.supervised import Supervised

__all__ = ["OfBatch", "Source", "StackedSource", "Supervised", "Tensors", "averaged", "error_rate", "scaled"]
