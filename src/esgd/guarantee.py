"""The guarantee: for a fixed, deterministic fitness and certain back-off, J of the m' best never rises, m' ≤ m.

Theorem 1 and its corollary. The check is slightly stronger and free of rounding: the i-th best fitness never rises,
for every i ≤ m. Then the means of these values cannot rise either. Sizes may change from generation to generation: the
survivors of generation k contain the m_k best of a superset of Ψ^(k−1), so in that generation no rank i ≤ m_k rises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from esgd.errors import FitnessError
from esgd.population import Population
from esgd.recipe import Recipe

CHANGED = 1e-4  # relative difference of a fitness that no rounding explains


def why_waived(recipe: Recipe, first: float, second: float) -> str:
    """Why the theorem does not apply to this run, or nothing. `first` and `second` score one individual twice."""
    if first != second and not (first != first and second != second):
        return (
            f"the fitness is noisy: one individual scored {first:.9g} and then {second:.9g}. Theorem 1 compares stored "
            f"values, so it needs a deterministic fitness. Is dropout or augmentation left on, does your fitness draw "
            f"random numbers, or is a kernel non-deterministic?"
        )
    if not recipe.backoff.certain:
        return f"back-off is not certain ({recipe.backoff}), so an individual may end its SGD step worse than it began."
    return ""


def check(before: Float[Tensor, " n"], after: Float[Tensor, " n"], elites: int, k: int) -> None:
    """Stop the run if an elite rank got worse although every condition of the theorem holds."""
    ranks = min(elites, len(before))  # a population that grows has new ranks
    old, new = before.sort().values[:ranks], after.sort().values[:ranks]
    worse = (new > old).nonzero().flatten()
    if len(worse):
        rank = int(worse[0])
        raise FitnessError(
            f"in generation {k} the fitness of rank {rank + 1} rose from {float(old[rank]):.9g} to "
            f"{float(new[rank]):.9g}, which Theorem 1 rules out. Its conditions are a fixed fitness, back-off that "
            f"never ends worse than it began, and m-elitist survival. A back-off or survival strategy of your own "
            f"breaks the second or third; if you wrote one, check it with esgd.testing."
        )


def check_same_fitness(line: Mapping[str, Any], stored: float, now: float) -> None:
    """Refuse to continue a run whose fitness function has changed; differences by rounding are accepted."""
    if line["guarantee"] == "held" and abs(now - stored) > CHANGED * abs(stored):
        raise FitnessError(
            f"the fittest individual of the saved run had the fitness {stored:.9g}; scored again it has {now:.9g}. "
            f"The run was deterministic, so the loss, the fitness data or the network's code has changed since. Undo "
            f"the change, or begin a new run."
        )


def check_start(population: Population) -> None:
    """Refuse an initial population without any finite fitness."""
    if not torch.isfinite(population.fitness).any():
        raise FitnessError(
            f"all {len(population)} individuals of the initial population have a fitness that is NaN or inf. "
            f"Selection has nothing to compare. Look for NaN in the fitness data, a loss that overflows (inputs not "
            f"scaled?), or a division by zero in a fitness of your own; scoring one freshly built network by hand "
            "will show it."
        )
