"""A run on disk: recipe, manifest, history and checkpoints in one folder, written so that a crash harms nothing."""

from esgd.run.folder import NoFolder, RunFolder, open_folder
from esgd.run.history import read_history
from esgd.run.verify import Verified, verify

__all__ = ["NoFolder", "RunFolder", "Verified", "open_folder", "read_history", "verify"]
