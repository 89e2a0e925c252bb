"""A run on disk: recipe, manifest, history and checkpoints in one folder, written so that a crash harms nothing."""

from esgd.run.folder import NoFolder, RunFolder, open_folder
from esgd.run.history import read_history

__all__ = ["NoFolder", "RunFolder", "open_folder", "read_history"]
