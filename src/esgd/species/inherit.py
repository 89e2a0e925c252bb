"""Policies that are inherited instead of drawn again. This is not in the paper, whose pools have no memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf

from esgd._validation import check_field, check_flag, check_list, check_number, check_range, check_species
from esgd.errors import RecipeError
from esgd.policies import Policy
from esgd.protocols import Draw, Species
from esgd.species.distributions import Uniform

_PROBABILITY = "It is the chance that a policy is inherited. Use 0 for the paper's rule, a fresh draw every generation."
_JITTER = "An inherited learning rate is multiplied by exp U[−jitter, jitter]. Use 0 to keep it as it is."
WILDEST = 50.0
"""Of `jitter`: exp(50) is 5e21."""

_FACTORS = "An inherited learning rate is multiplied by one of them. Use (0.8, 1.2) as PBT does, () for a jitter."
_CLIP = "It is the range (low, high) that an inherited learning rate is kept in. Use None for no limit."


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """With `probability`, the policy that this individual (or its fittest mate) last accepted; else a fresh draw.

    The inherited learning rate, without its annealing, is multiplied by exp U[−jitter, jitter], or by one of `factors`,
    clipped to the range `clip` where that is given, and annealed for generation k. Everything else is kept. With
    `offspring_only` all this is for offspring of the last generation; every other individual keeps its policy as it is,
    so let a schedule over the run do the annealing. With `returned` it is also for individuals whose SGD passed nothing
    fitter and begins again at their best place: the policy that led nowhere is not tried there again.
    """

    species: Species
    probability: float = 0.7
    jitter: float = 0.4
    clip: tuple[float, float] | None = None
    offspring_only: bool = False
    returned: bool = False
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_species("species", self.species)
        check_field(self, "probability", at_least=0, at_most=1, meaning=_PROBABILITY)
        check_field(self, "jitter", at_least=0, meaning=_JITTER)
        check_field(self, "jitter", at_most=WILDEST, meaning=_JITTER)
        check_flag(self, "offspring_only")
        check_flag(self, "returned")
        factors = check_list("factors", self.factors, meaning=_FACTORS)
        checked = (check_number(f"factors[{i}]", each, above=0, meaning=_FACTORS) for i, each in enumerate(factors))
        object.__setattr__(self, "factors", tuple(checked))
        if self.clip is not None:
            object.__setattr__(self, "clip", _clip(self.clip))

    def __call__(self, request: Draw) -> Policy:
        fresh, known = self.species(request), request.inherited
        unit = Uniform(0.0, 1.0)
        changes = request.newborn or (self.returned and request.returned)
        if known is not None and self.offspring_only and not changes:
            return known
        if known is None or unit.draw(request.seeds("inherit")) >= self.probability:
            return fresh
        if "lr" not in known.hyper or not known.annealing:  # there is no rate, or it has been annealed to nothing
            return fresh
        shake = self._shake(request)
        low, high = self.clip or (0.0, inf)
        drawn = min(max(known.hyper["lr"] / known.annealing * shake, low), high)
        return replace(known, hyper={**known.hyper, "lr": drawn * fresh.annealing}, annealing=fresh.annealing)

    def _shake(self, request: Draw) -> float:
        draw = Uniform(0.0, 1.0).draw(request.seeds("jitter"))
        if self.factors:
            return self.factors[int(draw * len(self.factors))]
        return exp(self.jitter * (2 * draw - 1))


def _clip(clip: tuple[float, float]) -> tuple[float, float]:
    ends = check_list("clip", clip, meaning=_CLIP)
    if len(ends) != 2:
        raise RecipeError(f"clip={clip!r} is not a range. {_CLIP}")
    low, high = ends
    open_ended = isinstance(high, float) and high == inf
    low, last = check_range(low, low if open_ended else high, name="clip", at_least=0, meaning=_CLIP)
    return low, inf if open_ended else last
