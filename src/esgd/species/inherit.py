"""Policies that are handed down instead of drawn anew. Not in the paper, whose pools forget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf

from esgd.errors import RecipeError
from esgd.policies import Policy
from esgd.protocols import Draw, Species
from esgd.species.distributions import Uniform


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """With `probability`, the policy that this individual (or its fittest mate) last accepted; else a fresh draw.

    The inherited learning rate, without its annealing, is multiplied by exp U[−jitter, jitter], clipped to the range
    `clip` where that is given, and annealed for generation k. Everything else is kept.
    """

    species: Species
    probability: float = 0.7
    jitter: float = 0.4
    clip: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1 or self.jitter < 0:
            raise RecipeError(
                f"probability={self.probability}, jitter={self.jitter}: the first is a probability, the second ≥ 0. "
                f"Use probability=0 for the paper's rule, a fresh draw every generation."
            )

    def __call__(self, request: Draw) -> Policy:
        fresh, known = self.species(request), request.inherited
        unit = Uniform(0.0, 1.0)
        if known is None or unit.draw(request.seeds("inherit")) >= self.probability:
            return fresh
        shake = exp(self.jitter * (2 * unit.draw(request.seeds("jitter")) - 1))
        low, high = self.clip or (0.0, inf)
        drawn = min(max(known.hyper["lr"] / known.annealing * shake, low), high)
        return replace(known, hyper={**known.hyper, "lr": drawn * fresh.annealing}, annealing=fresh.annealing)
