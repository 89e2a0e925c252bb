"""Learning rates at fixed ratios, one for each individual. This is not in the paper, whose pools draw them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from esgd._validation import check_list, check_number, check_species
from esgd.errors import RecipeError
from esgd.policies import Policy
from esgd.protocols import Draw, Species

_FACTORS = "Individual j has the learning rate of its species times factors[j]. Use (1, 4, 16)."


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The policies of a species, with the learning rate of place j in the population times `factors[j]`, and around
    again after the last one: a few individuals that surely try a few rates, where drawn ones may all be on one side.

    The rate belongs to the place. Put it inside `Inherited(offspring_only=True)`, so that a survivor keeps its own. The
    species inside is not told what was inherited.

    >>> from esgd.randomness import Seeds
    >>> from esgd.species import Adam
    >>> ladder = Ladder(species=Adam(lr=1e-3, gamma=1.0), factors=(1, 4))
    >>> [ladder(Draw(k=1, j=j, generations=1, stream=Seeds(0))).hyper["lr"] for j in range(3)]
    [0.001, 0.004, 0.001]
    """

    species: Species
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        check_species("species", self.species)
        factors = check_list("factors", self.factors, meaning=_FACTORS)
        if not factors:
            raise RecipeError(f"factors={self.factors!r} is empty. {_FACTORS}")
        checked = (check_number(f"factors[{i}]", each, above=0, meaning=_FACTORS) for i, each in enumerate(factors))
        object.__setattr__(self, "factors", tuple(checked))

    def __call__(self, request: Draw) -> Policy:
        policy, factor = self.species(replace(request, inherited=None)), self.factors[request.j % len(self.factors)]
        rates = {name: value * factor for name, value in policy.hyper.items() if name == "lr"}
        return replace(policy, hyper={**policy.hyper, **rates})
