"""model.safetensors: the network that a run gives back, for others to load.

Of a network with frozen parameters it has what was trained, and the buffers. The frozen ones come from `make_model`;
the manifest knows their digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_model, save_file, save_model
from torch import Tensor, nn

from esgd._serialization import digest
from esgd.errors import RunError
from esgd.genome import Genome, persistent_buffers
from esgd.run.files import open_to_read, replace_file
from esgd.run.manifest import START

PARTIAL = "trained parameters and buffers only: frozen parameters come from make_model"
"""What the metadata of a file says that has not all parameters."""


def write_model(path: Path, module: nn.Module) -> None:
    """Put the network's parameters and buffers in place of what is there."""
    replace_file(path, lambda aside: save_network(module, aside))


def save_network(module: nn.Module, path: Path) -> None:
    """Write a network as safetensors, without its frozen parameters."""
    if not frozen_parameters(module):
        save_model(module, str(path))
        return
    trained = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    tensors = {name: value.contiguous() for name, value in {**trained, **persistent_buffers(module)}.items()}
    save_file(tensors, path, metadata={"format": "pt", "esgd": PARTIAL})


def load_network(module: nn.Module, path: Path) -> None:
    """Read a safetensors file into a network, whose frozen parameters may be missing there; `RuntimeError` names what
    else is missing or too much."""
    open_to_read(path).close()  # safetensors would wait for the writer of a FIFO
    missing, unexpected = load_model(module, path, strict=False)
    lacking = set(missing) - frozen_parameters(module).keys()
    if lacking or unexpected:
        raise RuntimeError(f"missing parameters or buffers {sorted(lacking)}, unknown ones {sorted(unexpected)}")


def holds_model(path: Path, module: nn.Module) -> bool:
    """Whether the file has exactly the parameters and buffers of this network."""
    read = deepcopy(module)
    try:
        load_network(read, path)
    except (OSError, RuntimeError, ValueError, KeyError, SafetensorError):
        return False
    return digest(read.state_dict()) == digest(module.state_dict())


def frozen_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The parameters that are not trained, by every name they have."""
    named = module.named_parameters(remove_duplicate=False)
    return {name: parameter.detach() for name, parameter in named if not parameter.requires_grad}


def describe_network(genome: Genome) -> dict[str, Any]:
    """Layers and parameters of the networks of a run, for its manifest."""
    shapes = {name: list(shape) for name, shape in zip(genome.names, genome.shapes, strict=True)}
    return {"layers": repr(genome.template), "parameters": shapes}


def describe_frozen(module: nn.Module) -> dict[str, Any] | None:
    """How many numbers are frozen, and their digest: what tells one base from another. None where nothing is."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    if not frozen:
        return None
    return {"parameters": sum(value.numel() for value in frozen.values()), "sha256": digest(frozen)}


def describe_start(module: nn.Module) -> str:
    """The digest of what is trained in a network, and of its buffers."""
    trained = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    return digest({**trained, **persistent_buffers(module)})


def check_start(manifest: Mapping[str, Any], start: str | None, path: Path) -> None:
    """Refuse to continue with another network than the run began with. Earlier versions did not write which."""
    if start is not None and manifest.get(START, start) != start:
        raise RunError(
            f"{str(path)!r} belongs to another run: the network that its individuals began as has other weights than "
            f"the one that is given now. Choose a new folder, or give the network that the run began with."
        )


def check_frozen(manifest: Mapping[str, Any], module: nn.Module, path: Path) -> None:
    """Refuse a network with another base than the run was trained with."""
    if "frozen" in manifest and manifest["frozen"] != describe_frozen(module):
        raise RunError(
            f"the frozen parameters that make_model builds are not those that {str(path)!r} was trained with. The "
            f"folder has only what was trained, and on another base it would be another network. Load the same base in "
            f"make_model."
        )
