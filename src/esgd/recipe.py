"""The inputs of Algorithm 1 as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Generator

from esgd.errors import RecipeError, did_you_mean, shown
from esgd.notebook_cards import card
from esgd.operators import (
    Elitist,
    Fresh,
    Gaussian,
    PerGeneration,
    RandomStart,
    Reestimated,
    Roulette,
    breed,
    intermediate,
)
from esgd.operators.start import Network
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import (
    BackOff,
    Baggage,
    BufferRule,
    Load,
    Mating,
    Mutation,
    Recombination,
    Role,
    Scores,
    Species,
    Start,
    Survival,
)
from esgd.randomness import Seeds
from esgd.recipe_validation import check_immigrants, check_recipe, settled_mates
from esgd.serialization import decode, encode
from esgd.species import Adam, Fixed, Mixture, Sgd, Uniform
from esgd.validation import check_field, check_species
from esgd.wording import in_words

__all__ = ["FineTuning", "Recipe"]

OFFSPRING_PER_PARENT = 4  # BN50, SWB300 and Penn Treebank: λ = 400 for μ = 100
PAPER_ELITES = 0.6  # §4: "the m-elitist strategy is applied to 60% of the parent population"
_TUNING = (
    "Fine-tuning needs at least one epoch, and a learning rate above 0 or a species. Use fine_tuning=None for none."
)
MatesLike = int | Set[int] | Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """The speech recipes' last stage: "a 5-epoch fine-tuning is applied to each individual with a small learning
    rate" (§4.1). Plain SGD with `lr`, or any `species`. The recipe's back-off applies; there is no evolution step."""

    lr: float = 0.0
    epochs: int = 5
    species: Species | None = None

    def __post_init__(self) -> None:
        meaning = f"epochs={shown(self.epochs)}, lr={shown(self.lr)}: {_TUNING}"
        check_field(self, "epochs", at_least=1, whole=True, meaning=meaning)
        if self.species is None:
            check_field(self, "lr", above=0, meaning=meaning)
        else:
            check_species("species", self.species)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The inputs of one generation."""

    k: int
    species: Species
    sgd_epochs: int
    evolution_steps: int
    before: int
    name: str = "evolution"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The inputs of Algorithm 1. The defaults suit most small networks.

    | name              | symbol | meaning                                                             | default     |
    |-------------------|--------|---------------------------------------------------------------------|-------------|
    | `population`      | μ      | parents                                                             | 16          |
    | `offspring`       | λ      | offspring in each evolution step                                    | 4 μ         |
    | `mates`           | ρ      | parents of an offspring: a number, a set such as {1, 2}, or weights | 2           |
    | `elites`          | m      | the best that always survive: a count, or a fraction of μ           | 0.6         |
    | `generations`     | K      | how often the SGD and evolution steps alternate                     | 10          |
    | `sgd_epochs`      | K_s    | epochs of an SGD step                                               | 3           |
    | `evolution_steps` | K_v    | 0 is the paper's ablation                                           | 1           |
    | `species`         | π      | the distribution that optimizers are drawn from                     | SGD, ADAM   |
    | `backoff`         |        | which result of an SGD step is kept                                 | generation  |

    The other inputs are operators, each a small value; see `esgd.operators`. The paper's own tables are separate
    recipes.

    >>> Recipe(population=10).elite_count
    6
    """

    population: int = 16
    offspring: int | None = None
    mates: MatesLike = 2
    elites: int | float = PAPER_ELITES
    generations: int = 10
    sgd_epochs: int = 3
    evolution_steps: int = 1
    species: Species = Mixture(species=(Sgd(lr=Uniform(0.01, 0.5)), Adam(lr=Uniform(3e-4, 1e-2))))
    backoff: BackOff = PerGeneration()
    mating: Mating = Roulette()
    recombination: Recombination = intermediate
    mutation: Mutation = Gaussian()
    survival: Survival = Elitist()
    start: Start = RandomStart()
    immigrants: tuple[Network, ...] = ()
    fine_tuning: FineTuning | None = None
    buffers: BufferRule = Reestimated()
    baggage: Baggage = Fresh()
    early_abort: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "mates", settled_mates(self.mates))
        if self.fine_tuning is not None and not isinstance(self.fine_tuning, FineTuning):
            raise RecipeError(
                f"fine_tuning={shown(self.fine_tuning)} is not a FineTuning. Use FineTuning(lr=1e-4) or None."
            )
        check_immigrants(self.immigrants)
        object.__setattr__(self, "immigrants", tuple(self.immigrants))
        check_recipe(self)

    @property
    def elite_count(self) -> int:
        """m, the number of elites."""
        if isinstance(self.elites, int):
            return self.elites
        return max(1, round(self.elites * self.population))

    @property
    def offspring_count(self) -> int:
        """λ, the number of offspring in each evolution step."""
        return OFFSPRING_PER_PARENT * self.population if self.offspring is None else self.offspring

    @property
    def cutoff_rank(self) -> int | None:
        """The rank that an offspring must reach to be an elite; its evaluation may stop once it cannot. None: never."""
        return self.elite_count if self.early_abort and not self.survival.ranks_everyone else None

    @property
    def mate_weights(self) -> dict[int, float]:
        """The probability of each number of mates."""
        if isinstance(self.mates, Mapping):
            return dict(self.mates)
        counts = (self.mates,) if isinstance(self.mates, int) else sorted(self.mates)
        return {rho: 1.0 / len(counts) for rho in counts}

    @property
    def total_epochs(self) -> int:
        """SGD epochs of every individual over the whole run."""
        return self.generations * self.sgd_epochs + (self.fine_tuning.epochs if self.fine_tuning else 0)

    @property
    def load(self) -> Load:
        """The amount of work, for `engine="auto"`."""
        return Load(self.population, self.total_epochs)

    @property
    def stage_count(self) -> int:
        """How many generations a run yields: K, and one more for the fine-tuning."""
        return self.generations + (self.fine_tuning is not None)

    def stages(self, after: int = 0) -> Iterator[Stage]:
        """The generations that follow generation `after`: K of them, and the fine-tuning if there is one."""
        for k in range(after + 1, self.generations + 1):
            before = (k - 1) * self.sgd_epochs
            yield Stage(
                k=k,
                species=self.species,
                sgd_epochs=self.sgd_epochs,
                evolution_steps=self.evolution_steps if self.offspring_count or self.immigrants else 0,
                before=before,
            )
        if self.fine_tuning is not None and after <= self.generations:
            tuning = self.fine_tuning
            yield Stage(
                k=self.generations + 1,
                species=tuning.species or Fixed(policy=Policy(optimizer="sgd", hyper={"lr": tuning.lr})),
                sgd_epochs=tuning.epochs,
                evolution_steps=0,
                before=self.generations * self.sgd_epochs,
                name="fine-tuning",
            )

    def breed(self, everyone: Population, roles: Sequence[Role], *, k: int, v: int, seeds: Seeds) -> list[Birth]:
        """λ births. Every candidate may be a mate, except the ends of backed-off trajectories."""
        n = sum(role is not Role.END for role in roles)
        return breed(
            everyone.births[:n],
            everyone.fitness[:n],
            k=k,
            v=v,
            offspring=self.offspring_count,
            mates=self.mate_weights,
            mating=self.mating,
            mutation=self.mutation,
            seeds=seeds.at("breed"),
        )

    def survive(self, everyone: Population, roles: Sequence[Role], scores: Scores, generator: Generator) -> list[int]:
        """Indices of the m elites and the μ − m others, among everyone and then the scored births."""
        return self.survival(
            torch.cat([everyone.fitness, scores.fitness]),
            [*roles, *(Role.OFFSPRING for _ in scores.fitness)],
            size=self.population,
            elites=self.elite_count,
            generator=generator,
        )

    def _repr_html_(self) -> str:
        return card("Recipe", {name: in_words(value) for name, value in self.described().items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain tables for TOML and JSON, resolved: every input of Algorithm 1, also those left at their default."""
        return self._spelt(encode)

    def described(self) -> dict[str, Any]:
        """As `to_dict`, but a strategy without an importable name, such as a lambda, is only named: for manifests."""
        return self._spelt(_encode_or_name)

    def _spelt(self, spell: Callable[[Any], Any]) -> dict[str, Any]:
        table = {each.name: spell(getattr(self, each.name)) for each in fields(self)} | {
            "offspring": self.offspring_count
        }
        return {name: value for name, value in table.items() if value is not None}

    @staticmethod
    def from_dict(table: Mapping[str, Any], *, allow: Collection[str] = ()) -> Recipe:
        """The inverse of `to_dict`; an unknown key gets a suggestion.

        A table is data: it can name only our own strategies and those of the packages in `allow`.
        """
        if not isinstance(table, Mapping):
            raise RecipeError(f"{shown(table)} is not a recipe, which is a table of the inputs of Algorithm 1.")
        known = [each.name for each in fields(Recipe)]
        for name in table:
            if name not in known:
                raise RecipeError(f"{shown(name)} is not an input of a recipe. {did_you_mean(str(name), known)}")
        return Recipe(**{name: decode(value, allow=allow, name=name) for name, value in table.items()})


def _encode_or_name(value: Any) -> Any:
    try:
        return encode(value)
    except RecipeError:
        return f"not importable: {getattr(value, '__qualname__', type(value).__qualname__)}"
