"""Encoding: "parameters are vectorized into a real-valued vector" (§3.3, item 1), and back.

A genome describes how the *trainable* parameters of a network lie in one row θ ∈ R^d. Tied weights appear once.
Frozen parameters are not part of an individual: one copy is shared by all and never duplicated, so μ
adapters on a frozen base cost μ adapters and one base. Buffers that belong to the network's state (BatchNorm
statistics and the like) travel beside the row; buffers registered with `persistent=False` are constants and stay.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor, nn

from esgd._network_validation import check_network
from esgd.errors import EsgdError, TaskError
from esgd.randomness import Seeds, global_randomness

Row = Float[Tensor, " d"]
Buffers = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Genome:
    """The layout of a row, and the network it is read into.

    | field      | meaning                                                                    |
    |------------|----------------------------------------------------------------------------|
    | `template` | a network with the shared frozen parameters; its trainable ones mean nothing |
    | `names`    | trainable parameters, in the network's order, tied ones once               |
    | `shapes`   | their shapes                                                               |
    | `state`    | names of the persistent buffers                                            |
    """

    template: nn.Module
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    dtype: torch.dtype
    state: tuple[str, ...]

    @staticmethod
    def of(module: nn.Module) -> Genome:
        """Read the layout off a network, or say by name why it has none."""
        check_network(module)
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        shapes = tuple(p.shape for p in trainable.values())
        dtype = next(iter(trainable.values())).dtype
        return Genome(module, tuple(trainable), shapes, dtype, tuple(persistent_buffers(module)))

    @property
    def size(self) -> int:
        """d, the length of a row."""
        return sum(shape.numel() for shape in self.shapes)

    def slices(self) -> list[slice]:
        """Where each trainable tensor lies in a row."""
        ends = list(accumulate(shape.numel() for shape in self.shapes))
        return [slice(end - shape.numel(), end) for end, shape in zip(ends, self.shapes, strict=True)]

    def views(self, row: Row) -> dict[str, Tensor]:
        """The row cut into the network's tensors, without copying."""
        parts = zip(self.names, self.slices(), self.shapes, strict=True)
        return {name: row[where].view(shape) for name, where, shape in parts}

    def read(self, module: nn.Module) -> tuple[Row, dict[str, Tensor]]:
        """Row and buffers of a network of this layout (copies)."""
        self.check(module)
        parameters = dict(module.named_parameters())
        row = torch.cat([parameters[name].detach().reshape(-1).cpu() for name in self.names])
        return row, {name: b.detach().cpu().clone() for name, b in persistent_buffers(module).items()}

    def write(self, row: Row, buffers: Buffers, module: nn.Module) -> None:
        """Copy row and buffers into a network of this layout."""
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.views(row).items():
                parameters[name].copy_(value)
            for name, buffer in persistent_buffers(module).items():
                buffer.copy_(buffers[name])

    def module(self, row: Row, buffers: Buffers) -> nn.Module:
        """An ordinary network with these parameters, in eval mode; frozen parameters are shared, not copied."""
        frozen = [p for p in self.template.parameters() if not p.requires_grad]
        # The same memory in a Parameter of its own: casting or unfreezing this network leaves the others alone.
        shared = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in frozen}
        module = copy.deepcopy(self.template, memo=dict(shared))
        self.write(row, buffers, module)
        return module.eval()

    def check(self, module: nn.Module) -> None:
        """Refuse a network of another layout, naming the first difference."""
        other = {name: p.shape for name, p in module.named_parameters() if p.requires_grad}
        for name, shape in zip(self.names, self.shapes, strict=True):
            if other.pop(name, None) != shape:
                raise TaskError(
                    f"the network has no trainable parameter {name!r} of shape {tuple(shape)}. All individuals share "
                    f"one architecture, so that rows can be averaged. Make make_model return the same layers each time."
                )
        if other:
            raise TaskError(
                f"the network has a trainable parameter {next(iter(other))!r} that the population lacks. All "
                f"individuals share one architecture. Make make_model return the same layers each time."
            )
        ours, theirs = layout(self.template), layout(module)
        for name in dict.fromkeys([*ours, *theirs]):
            if name.startswith("buffer") and ours.get(name) != theirs.get(name):
                raise TaskError(
                    f"{name} of the network is {theirs.get(name, 'missing')}, and {ours.get(name, 'missing')} in the "
                    f"population. All individuals share one architecture. Make make_model return the same layers each "
                    f"time."
                )


def layout(module: nn.Module) -> dict[str, str]:
    """Every parameter and persistent buffer, with its dtype and shape."""
    named: dict[str, Tensor] = {f"parameter {name!r}": parameter for name, parameter in module.named_parameters()}
    named |= {f"buffer {name!r}": buffer for name, buffer in persistent_buffers(module).items()}
    return {name: f"{tensor.dtype} of shape {tuple(tensor.shape)}" for name, tensor in named.items()}


def persistent_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are part of `state_dict`, by name, shared ones once."""
    saved = module.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in module.named_buffers() if name in saved}


def build(make_model: Callable[[], nn.Module], seeds: Seeds) -> nn.Module:
    """A newly initialised network whose initial weights depend on the address alone."""
    try:
        with global_randomness(seeds.integer()):
            module = make_model()
    except EsgdError:
        raise
    except Exception as error:
        raise TaskError(
            f"make_model raised {type(error).__name__}: {error}. It is called without arguments, once per individual, "
            f"and must build and return a new network each time. Call it by hand to see where."
        ) from error
    if not isinstance(module, nn.Module):
        raise TaskError(
            f"make_model returned {type(module).__name__}, not an nn.Module. It must build and return a new network "
            f"each time it is called, for example: lambda: nn.Linear(64, 10)."
        )
    return module
