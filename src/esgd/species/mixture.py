"""Species made of other species or of one policy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from esgd._validation import check_field, check_list, check_species
from esgd.policies import Policy, check_policy
from esgd.protocols import Draw, Species
from esgd.species.distributions import check_weights, pick

_SPECIES = "They compete in one population. Give them in a list, such as [Sgd(lr=0.1), Adam(lr=1e-3)]."
_GAMMA = "The learning rate of generation k is γ^k times the first one. Use 1 for no annealing."


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """One of several species, with equal or given weights: competing optimizers in one population."""

    species: tuple[Species, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "species", check_list("species", self.species, meaning=_SPECIES))
        for i, species in enumerate(self.species):
            check_species(f"species[{i}]", species)
        object.__setattr__(self, "weights", check_weights(self.species, self.weights))

    def __call__(self, request: Draw) -> Policy:
        return self.species[pick(len(self.species), self.weights, request.seeds("species"))](request)


@dataclass(frozen=True, kw_only=True)
class Once:
    """The draw of generation 1, kept and annealed as its species anneals: in the population baseline it is "randomly
    decided at the beginning and then fixed for the rest of the training" (§4)."""

    species: Species

    def __post_init__(self) -> None:
        check_species("species", self.species)

    def __call__(self, request: Draw) -> Policy:
        return self.species(request.as_in(1))


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The same policy for every individual and generation; with `gamma`, its learning rate times γ^k."""

    policy: Policy
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_policy(self.policy)
        check_field(self, "gamma", above=0, at_most=1, meaning=_GAMMA)

    def __call__(self, request: Draw) -> Policy:
        annealing = self.gamma**request.k
        annealed = {name: value * annealing for name, value in self.policy.hyper.items() if name == "lr"}
        return replace(self.policy, hyper={**self.policy.hyper, **annealed}, annealing=annealing)
