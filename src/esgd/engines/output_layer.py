"""Which parameters multiply the output of a network: in most networks, those of the last layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

TRIED = 4
"""So many layers are tried, the last first: a network may have parameters of its own, which count as used last."""


@torch.no_grad()
def output_layer(
    module: nn.Module, trained: Sequence[str], outputs: Callable[[], Any], generator: torch.Generator
) -> list[str]:
    """The names of these parameters; none if no layer is found, or some of its parameters are not `trained`.

    `outputs` runs the module. A layer is given random parameters, then twice these. Floating-point numbers are doubled
    exactly, so the output must be exactly twice as large; mostly it is not if an activation, a residual or another use
    of the weights follows. An activation that is linear for large values can pass. So this finds what to try, and
    proves nothing.
    """
    used, layers = list[nn.Module](), [layer for layer in module.modules() if _own_parameters(layer)]
    hooks = [layer.register_forward_hook(lambda layer, _, __: used.append(layer)) for layer in layers]
    try:
        outputs()
    finally:
        for hook in hooks:
            hook.remove()
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for layer in list(dict.fromkeys(reversed(used)))[:TRIED]:
        parameters = _own_parameters(layer)
        found = [names[id(parameter)] for parameter in parameters]
        if set(found) <= set(trained) and _multiplies(parameters, outputs, generator):
            return found
    return []


def _multiplies(parameters: Sequence[nn.Parameter], outputs: Callable[[], Any], generator: torch.Generator) -> bool:
    """Whether the output doubles with these parameters, which are changed and brought back."""
    before = [parameter.detach().clone() for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        once = outputs()
        for parameter in parameters:
            parameter.mul_(2)
        twice = outputs()
    finally:
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)
    return isinstance(once, Tensor) and bool(once.any()) and torch.equal(twice, 2 * once)


def _own_parameters(layer: nn.Module) -> list[nn.Parameter]:
    """Those of the layer itself, and what its weights are made of (`torch.nn.utils.parametrize`)."""
    made_of = getattr(layer, "parametrizations", None)
    return [*layer.parameters(recurse=False), *(made_of.parameters() if isinstance(made_of, nn.Module) else ())]
