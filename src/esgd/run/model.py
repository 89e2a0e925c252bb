"""model.safetensors: the network that a run gives back, for others to load."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn

from esgd._serialization import digest
from esgd.run.files import open_to_read, replace_file


def write_model(path: Path, module: nn.Module) -> None:
    """Put the network's parameters and buffers in place of what is there."""
    replace_file(path, lambda aside: save_model(module, str(aside)))


def holds_model(path: Path, module: nn.Module) -> bool:
    """Whether the file has exactly the parameters and buffers of this network."""
    read = deepcopy(module)
    try:
        open_to_read(path).close()  # safetensors would wait for the writer of a FIFO
        load_model(read, path)
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError):
        return False
    return digest(read.state_dict()) == digest(module.state_dict())
