"""Other scales of a network's output, from the same fitness pass.

In most networks the parameters of the last layer multiply the output: those times c, and the output is c times as
large. So one pass tells the fitness for many c, and a network with such an output is an ordinary network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from esgd.engines.contract import Score, in_groups
from esgd.engines.fitness import Networks, Scorer
from esgd.genome import Buffers
from esgd.protocols import Batch, ScoresOutputs


def fitness_by_scale(task: ScoresOutputs, scales: Sequence[float]) -> Callable[[nn.Module, Batch], Tensor]:
    """The fitness of a part as a function of network and batch, with the output times each of these numbers: (s,)."""

    def by_scale(module: nn.Module, batch: Batch) -> Tensor:
        output = task.output(module, batch)
        return torch.stack([task.output_fitness(output * scale, batch) for scale in scales])

    return by_scale


def output_layer(
    module: nn.Module, trained: Sequence[str], outputs: Callable[[], Any], generator: torch.Generator
) -> list[str]:
    """The names of the parameters that multiply the output: those of the last layer that forward uses, or none.

    The layer is given random parameters, then twice these. Floating-point numbers are doubled exactly, so the output
    must be exactly twice as large. It is not if an activation, a residual or another use of the weights follows. A
    layer with parameters that are not `trained` stays as it is. `outputs` runs the module, whose parameters are changed
    and brought back.
    """
    used = list[nn.Module]()
    layers = [layer for layer in module.modules() if next(layer.parameters(recurse=False), None) is not None]
    hooks = [layer.register_forward_hook(lambda layer, _, __: used.append(layer)) for layer in layers]
    try:
        outputs()
    finally:
        for hook in hooks:
            hook.remove()
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    found = [(names[id(parameter)], parameter) for parameter in _own_parameters(used[-1])] if used else []
    if not all(name in trained for name, _ in found):
        return []
    before = [parameter.detach().clone() for _, parameter in found]
    for _, parameter in found:
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
    once = outputs()
    for _, parameter in found:
        parameter.mul_(2)
    twice = outputs()
    for (_, parameter), value in zip(found, before, strict=True):
        parameter.copy_(value)
    multiplied = isinstance(once, Tensor) and bool(once.any()) and torch.equal(twice, 2 * once)
    return [name for name, _ in found] if multiplied else []


def _own_parameters(layer: nn.Module) -> list[nn.Parameter]:
    """Those of the layer itself, and what its weights are made of (`torch.nn.utils.parametrize`)."""
    made_of = getattr(layer, "parametrizations", None)
    return [*layer.parameters(recurse=False), *(made_of.parameters() if isinstance(made_of, nn.Module) else ())]


class ScalableNetworks(Networks, Protocol):
    """Networks whose output can be multiplied, if they have such a layer."""

    @property
    def output_layer(self) -> Sequence[int]:
        """The places of its parameters in the genome; empty if there is none."""
        ...

    def losses_by_scale(self, rows: Sequence[int], batch: Batch, scales: Sequence[float]) -> Sequence[Sequence[float]]:
        """As `losses`, for each row with its output times each of these numbers."""
        ...


@dataclass(frozen=True, eq=False)
class ScaledNetworks:
    """Each network with its output times each of s numbers, as n × s `Networks` to score: row i · s + j is network i
    with number j."""

    networks: ScalableNetworks
    scales: Sequence[float]

    def __len__(self) -> int:
        return len(self.networks) * len(self.scales)

    def calibrate(self, rows: Sequence[int]) -> int:
        return self.networks.calibrate(self._networks(rows))

    def losses(self, rows: Sequence[int], batch: Batch) -> list[float]:
        asked = self._networks(rows)
        found = dict(zip(asked, self.networks.losses_by_scale(asked, batch, self.scales), strict=True))
        return [found[row // len(self.scales)][row % len(self.scales)] for row in rows]

    def check_layout(self) -> None:
        self.networks.check_layout()

    def overflowed(self) -> list[int]:
        s = len(self.scales)
        return [i * s + j for i in self.networks.overflowed() for j in range(s)]

    def buffers(self, row: int) -> Buffers:
        return self.networks.buffers(row // len(self.scales))

    def _networks(self, rows: Sequence[int]) -> list[int]:
        return list(dict.fromkeys(row // len(self.scales) for row in rows))


def score_scaled(scorer: Scorer, networks: ScalableNetworks, scales: Sequence[float]) -> list[list[Score]]:
    """For each network its score, and those with its output times each of these numbers; without the latter, if its
    output cannot be multiplied. The pass is counted once."""
    if not scales or not networks.output_layer:
        return [[score] for score in scorer.score(networks)]
    every = (1.0, *scales)
    return [list(each) for each in in_groups(scorer.score(ScaledNetworks(networks, every)), len(every))]
