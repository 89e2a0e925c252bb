"""Which networks belong into an ensemble: greedy forward selection (Caruana et al., 2004), on the fitness split."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import torch
from torch import nn

from esgd._tensors.batches import copied, to_device
from esgd.deploy.ensemble import Ensemble
from esgd.population import Individual, Population
from esgd.protocols import Average, Averages, Task, Weighted
from esgd.randomness import Seeds, global_randomness

LEAST_GAIN = 1e-6
"""How much lower the fitness must become, relative to what it is. Less is rounding, and every network costs a pass."""


def greedy_ensemble(
    task: Task, population: Population, k: int, *, average: Average | None = None, device: str = "cpu"
) -> Ensemble:
    """The first individual, then again and again the one that lowers the fitness of the ensemble most, up to k.

    It ends earlier where none lowers it. A look at all individuals is one forward pass of each over the fitness split:
    with n individuals, at most k × n passes. `average` is the task's own way unless given; see `Ensemble`.
    """
    average = average or (task.average if isinstance(task, Averages) else "outputs")
    networks = [Individual(population, i).module().to(device) for i in range(len(population))]
    chosen, fitness = list[int](), inf
    while len(chosen) < min(k, len(networks)):
        others = [i for i in range(len(networks)) if i not in chosen] if chosen else [0]
        found = _scored(task, networks, [[*chosen, i] for i in others], average, device)
        lowest = min(range(len(others)), key=lambda place: found[place])
        if chosen and not found[lowest] < fitness - LEAST_GAIN * abs(fitness):
            break
        chosen, fitness = [*chosen, others[lowest]], found[lowest]
    ensemble = Ensemble([networks[i] for i in chosen], average=average).eval()
    ensemble.fitness = fitness if len(chosen) > 1 else float(population.fitness[chosen[0]])
    return ensemble


@torch.no_grad()
def _scored(
    task: Task, networks: Sequence[nn.Module], groups: Sequence[Sequence[int]], average: Average, device: str
) -> list[float]:
    """The fitness of an ensemble of each group of networks. All groups see a part before the next one is read, and
    every network sees it once."""
    sums, counted = [0.0] * len(groups), 0.0
    counts = task.divisor if isinstance(task, Weighted) else task.size
    remembering = [_Remembering(network) for network in networks]
    ensembles = [Ensemble([remembering[i] for i in group], average=average).eval() for group in groups]
    for _, batch in task.parts():
        batch = to_device(batch, torch.device(device))
        counted += counts(batch)
        for number, ensemble in enumerate(ensembles):
            with global_randomness(Seeds(0).integer("ensemble")):  # where a fitness draws, all see the same
                sums[number] += float(task.fitness(ensemble, batch))
            if batch is None:  # the fitness has read the split by itself, as new tensors for each ensemble
                for network in remembering:
                    network.forget()
        for network in remembering:
            network.forget()
    return [each / counted if isfinite(each) else inf for each in sums]


class _Remembering(nn.Module):
    """A network that computes its output for the same tensors once. It sees copies: it may write into its input."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._known: list[tuple[tuple[Any, ...], Any]] = []

    def forget(self) -> None:
        self._known.clear()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        asked = (*inputs, *(each for pair in sorted(named.items()) for each in pair))
        for given, output in self._known:
            if len(given) == len(asked) and all(one is other for one, other in zip(given, asked, strict=True)):
                return output
        output = self.network(*copied(inputs), **copied(named))
        self._known.append((asked, output))
        return output
