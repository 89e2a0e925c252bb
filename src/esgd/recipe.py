"""The inputs of Algorithm 1 as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Generator

from esgd._names.trust import NAMES_CODE, check_allowed, code_names
from esgd._recipe_validation import check_immigrants, check_recipe, settled_mates
from esgd._serialization import decode, encode
from esgd._sizes.situation import Situation
from esgd._sizes.timed import Turn
from esgd._text.notebook_cards import card
from esgd._text.wording import duration, in_words
from esgd._validation import check_field, check_species, is_count
from esgd.budget import Budget
from esgd.errors import RecipeError, did_you_mean, shown
from esgd.generation import State
from esgd.operators import (
    Anchor,
    Elitist,
    Fresh,
    Gaussian,
    Mated,
    OffspringKind,
    PerGeneration,
    RandomStart,
    Reestimated,
    Roulette,
    anyone,
    breed,
)
from esgd.operators.start import Network
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import (
    BackOff,
    Baggage,
    BufferRule,
    Engine,
    Load,
    Mating,
    Mutation,
    Recombination,
    Role,
    Scores,
    Session,
    Species,
    SpeciesLike,
    Start,
    Survival,
    Task,
    continues,
)
from esgd.randomness import Seeds
from esgd.ranges import usual_range
from esgd.sizes import Each, Funnel, PerIndividual, Size, Spending, Timed, size_in
from esgd.species import Adam, Fixed, Mixture, Sgd, Uniform
from esgd.species.auto import auto_pools, settled_species

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
            if found := next(iter(auto_pools(self.species)), ""):
                raise RecipeError(
                    f"the species of the fine-tuning has lr='auto' for {found}. Ranges are found for the network that "
                    f"a run begins with, and are too high for one that is trained. Give a range: (1e-5, 1e-4)."
                )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The inputs of one generation.

    | field             | symbol  | meaning                                          |
    |-------------------|---------|--------------------------------------------------|
    | `population`      | μ_k     | individuals that are trained                     |
    | `survivors`       | μ_{k+1} | individuals that it leaves                       |
    | `elites`          | m_k     | the best of these                                |
    | `sgd_epochs`      | K_s     | epochs of the SGD step                           |
    | `evolution_steps` | K_v     | evolution steps                                  |
    | `before`, `total` |         | epochs of SGD in earlier generations, and in all |
    | `last`            |         | whether it is expected to be the run's last one  |
    """

    k: int
    species: Species
    population: int
    survivors: int
    elites: int
    sgd_epochs: float
    evolution_steps: int
    before: float
    total: float
    last: bool
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
    recipes. `recombination=None` is `intermediate`, the mean of the mates, or for a network with LoRA factors
    `LoraProduct()`, the mean of their updates.

    The four sizes μ, λ, m and K_s may change from generation to generation; see `esgd.sizes`.

    >>> Recipe(population=10).elites_of(1)
    6
    """

    population: int | Size = 16
    offspring: int | Size | None = None
    mates: MatesLike = 2
    elites: int | float | Size = PAPER_ELITES
    generations: int = 10
    sgd_epochs: float | Size = 3
    evolution_steps: int = 1
    species: SpeciesLike = field(
        default=Mixture(species=(Sgd(lr=Uniform(*usual_range("sgd"))), Adam(lr=Uniform(*usual_range("adam"))))),
        metadata=NAMES_CODE,
    )
    backoff: BackOff = PerGeneration()
    mating: Mating = Roulette()
    mates_from: Callable[[Role], bool] = anyone
    recombination: Recombination | None = None
    kinds: tuple[OffspringKind, ...] = (Mated(),)
    mutation: Mutation = Gaussian()
    survival: Survival = Elitist()
    start: Start = RandomStart()
    immigrants: tuple[Network, ...] = ()
    fine_tuning: FineTuning | None = None
    buffers: BufferRule = Reestimated()
    baggage: Baggage = Fresh()
    anchor: Anchor | None = None
    early_abort: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "mates", settled_mates(self.mates))
        if self.fine_tuning is not None and not isinstance(self.fine_tuning, FineTuning):
            raise RecipeError(
                f"fine_tuning={shown(self.fine_tuning)} is not a FineTuning. Use FineTuning(lr=1e-4) or None."
            )
        object.__setattr__(self, "species", settled_species(self.species))
        check_immigrants(self.immigrants)
        object.__setattr__(self, "immigrants", tuple(self.immigrants))
        check_recipe(self)

    @staticmethod
    def within(budget: Budget, task: Task, engine: str | Engine = "auto", *, rules: str = "ours") -> Recipe:
        """The recipe by these rules for a time such as "30m" or 1800 seconds, or for an amount of `esgd.Work`.

        Of a time, steps of the task's own network are measured on the engine, in about 2% of it. K_s is `Timed`: it
        follows the clock, so that the run ends when the time is over.
        """
        planning = import_module("esgd.planning")  # it is above a recipe: it measures engines
        recipe: Recipe = planning.within(budget, task, engine, rules=rules)
        return recipe

    @property
    def elite_count(self) -> int:
        """m, the number of elites, in generation 1."""
        return self.elites_of(1)

    @property
    def offspring_count(self) -> int:
        """λ, the number of offspring in each evolution step, in generation 1."""
        return self.offspring_of(1)

    def population_of(self, k: int) -> int:
        """μ_k, the individuals that are trained in generation k; those after the last are as many as in it."""
        return int(self._at("population", min(k, self.generations), whole=True))

    def elites_of(self, k: int) -> int:
        """m_k, the best that survive generation k: of a fraction, that part of the survivors."""
        survivors = self.population_of(k + 1)
        elites = self._at("elites", k, population=survivors)
        if isinstance(self.elites, float) or (callable(self.elites) and elites < 1):
            elites = max(1, round(elites * survivors))
        return min(int(elites), survivors)

    def epochs_of(self, k: int) -> float:
        """K_s of generation k."""
        return self._at("sgd_epochs", k, population=self.population_of(k))

    def offspring_of(self, k: int, history: Sequence[Mapping[str, Any]] | None = None) -> int:
        """λ_k, the offspring in each evolution step of generation k; `history` is that of the generations before, if
        there is one yet."""
        if self.offspring is None:
            return OFFSPRING_PER_PARENT * self.population_of(k)
        if not callable(self.offspring):
            return self.offspring
        turn = self._turn(k, history)
        last = turn.last if turn else k == self.generations
        return int(self._at("offspring", k, population=self.population_of(k), history=history, last=last, whole=True))

    def _at(self, name: str, k: int, *, whole: bool = False, **more: Any) -> float:
        size = getattr(self, name)
        if not callable(size):
            return size  # type: ignore[no-any-return]
        return size_in(name, size, Situation(k=k, generations=self.generations, **more), whole=whole)

    @property
    def largest(self) -> tuple[int, int]:
        """The most individuals and the most offspring that a generation plans to have."""
        generations = range(1, 1 + (self.generations if self.is_scheduled else 1))
        return max(map(self.population_of, generations)), max(map(self.offspring_of, generations))

    @property
    def wants_ends(self) -> bool:
        """Whether the end of a trajectory that was backed off is a candidate or a mate."""
        return self.survival.wants_ends or self.mates_from(Role.END)

    @property
    def wants_every_end(self) -> bool:
        """Whether the end of a trajectory is a candidate or a mate also where an earlier place was kept."""
        return bool(getattr(self.survival, "wants_every_end", False)) or self.mates_from(Role.END)

    @property
    def is_scheduled(self) -> bool:
        """Whether a size changes from generation to generation."""
        sizes = (self.population, self.offspring, self.elites, self.sgd_epochs)
        return any(callable(size) for size in sizes)

    def cutoff_rank(self, stage: Stage) -> int | None:
        """The rank that an offspring must reach to be an elite; its evaluation may stop once it cannot. None: never."""
        aborts = self.early_abort and not self.survival.ranks_everyone and not isinstance(self.sgd_epochs, Spending)
        return stage.elites if aborts else None

    @property
    def mate_weights(self) -> dict[int, float]:
        """The probability of each number of mates."""
        if isinstance(self.mates, Mapping):
            return dict(self.mates)
        counts = (self.mates,) if isinstance(self.mates, int) else sorted(self.mates)
        return {rho: 1.0 / len(counts) for rho in counts}

    @property
    def total_epochs(self) -> float:
        """SGD epochs of an individual that is in every generation."""
        return self._epochs_before(self.generations + 1) + (self.fine_tuning.epochs if self.fine_tuning else 0)

    def _epochs_before(self, k: int) -> float:
        """Always added up in the same way: a resumed run must have the same number."""
        return self._added_epochs[k - 1] if callable(self.sgd_epochs) else (k - 1) * self.sgd_epochs

    @cached_property
    def _added_epochs(self) -> tuple[float, ...]:
        """Of the first 0, 1, …, K generations, where they change."""
        return tuple(accumulate(map(self.epochs_of, range(1, self.generations + 1)), initial=0.0))

    @property
    def load(self) -> Load:
        """The amount of work, for `engine="auto"`."""
        if not callable(self.population):
            return Load(self.population_of(1), self.total_epochs)
        sizes = groupby(self.stages(), key=lambda stage: stage.population)
        first, *later = (Load(size, sum(stage.sgd_epochs for stage in stages)) for size, stages in sizes)
        return replace(first, later=tuple(later))

    @property
    def stage_count(self) -> int:
        """How many generations a run yields: K, and one more for the fine-tuning."""
        return self.generations + (self.fine_tuning is not None)

    @property
    def clock(self) -> Timed | None:
        """The budget of time that K_s follows, if there is one."""
        return self.sgd_epochs if isinstance(self.sgd_epochs, Timed) else None

    def out_of_time(self, k: int, history: Sequence[Mapping[str, Any]]) -> str:
        """Why there is no generation after generation k, the last of this history: the time is over. Or nothing."""
        over = self.clock and k < self.generations and self.clock.turn(k + 1, self.generations, history) is None
        return f"the time of {duration(self.clock.seconds)} is over" if self.clock and over else ""

    def stages(self, after: int = 0) -> Iterator[Stage]:
        """The generations that follow generation `after`, as planned: K of them, and perhaps the fine-tuning."""
        for k in range(after + 1, self.generations + 1):
            yield self._stage(k, None)
        if after < self.stage_count and (tuning := self._tuning_stage()):
            yield tuning

    def stage_after(self, state: State) -> Stage | None:
        """The generation that follows a state; None at the end: all are made, or the time of a budget is over."""
        k = state.k + 1
        if k > self.generations:
            return self._tuning_stage() if k == self.stage_count else None
        return None if self.out_of_time(state.k, state.history) else self._stage(k, state.history)

    def _stage(self, k: int, history: Sequence[Mapping[str, Any]] | None) -> Stage:
        selects = self.offspring != 0 or bool(self.immigrants) or callable(self.population)
        turn = self._turn(k, history)
        return Stage(
            k=k,
            species=settled_species(self.species),
            population=self.population_of(k),
            survivors=self.population_of(k + 1),
            elites=self.elites_of(k),
            sgd_epochs=turn.epochs if turn else self.epochs_of(k),
            evolution_steps=self.evolution_steps if selects else 0,
            before=turn.before if turn else self._epochs_before(k),
            total=turn.total if turn else self.total_epochs,
            last=turn.last if turn else k == self.generations,
        )

    def _turn(self, k: int, history: Sequence[Mapping[str, Any]] | None) -> Turn | None:
        """What a K_s that follows the clock or the ledger gives generation k; None if it is another one."""
        follows = self.sgd_epochs if isinstance(self.sgd_epochs, Timed | Spending) else None
        return follows.turn(k, self.generations, history) if follows else None

    def _tuning_stage(self) -> Stage | None:
        tuning, last = self.fine_tuning, self.generations
        if tuning is None:
            return None
        return Stage(
            k=last + 1,
            species=tuning.species or Fixed(policy=Policy(optimizer="sgd", hyper={"lr": tuning.lr})),
            population=self.population_of(last + 1),
            survivors=self.population_of(last + 1),
            elites=self.elites_of(last),
            sgd_epochs=tuning.epochs,
            evolution_steps=0,
            before=self._epochs_before(last + 1),
            total=self.total_epochs,
            last=False,
            name="fine-tuning",
        )

    def extended(self, generations: int) -> Recipe:
        """The same rules for more generations, `generations` in all: what a finished run can continue with.

        Sizes that change are those of the shorter run, and then stay: a funnel does not widen again.

        >>> from esgd.sizes import Funnel
        >>> Recipe(population=Funnel(8, 2), generations=3).extended(5).population
        Each(values=(8, 4, 2))
        """
        if not is_count(generations, least=self.generations + 1):
            raise RecipeError(
                f"generations={shown(generations)} is not a whole number above the {self.generations} generations of "
                f"this recipe. It is how many there are in all. Use for example generations={2 * self.generations}."
            )
        ks = range(1, self.generations + 1)
        return replace(
            self,
            generations=generations,
            population=Each(tuple(map(self.population_of, ks))) if callable(self.population) else self.population,
            elites=Each(tuple(map(self.elites_of, ks))) if callable(self.elites) else self.elites,
            sgd_epochs=Each(tuple(map(self.epochs_of, ks))) if callable(self.sgd_epochs) else self.sgd_epochs,
            offspring=Each(tuple(map(self.offspring_of, ks))) if isinstance(self.offspring, Funnel) else self.offspring,
        )

    def breed(
        self,
        everyone: Population,
        roles: Sequence[Role],
        stage: Stage,
        state: State,
        *,
        v: int,
        session: Session,
        seeds: Seeds,
    ) -> list[Birth]:
        """λ births, of the candidates that may be mates."""
        return breed(
            everyone.births,
            everyone.fitness,
            possible=[i for i, role in enumerate(roles) if self.mates_from(role)] or range(len(roles)),
            kinds=self.kinds,
            k=stage.k,
            v=v,
            last=stage.last and v == stage.evolution_steps,
            offspring=self.offspring_of(stage.k, state.history),
            elites=stage.elites,
            mates=self.mate_weights,
            mating=self.mating,
            mutation=self.mutation,
            score=partial(session.evaluate, everyone),
            seeds=seeds.at("breed"),
        )

    def survive(
        self, everyone: Population, roles: Sequence[Role], scores: Scores, stage: Stage, generator: Generator
    ) -> list[int]:
        """Indices of the m elites and the other survivors, among everyone and then the scored births.

        Where SGD is not interrupted, every parent is a trajectory that continues, and its end is no candidate itself.
        """
        fitness, every = (
            torch.cat([everyone.fitness, scores.fitness]),
            [*roles, *[Role.OFFSPRING] * len(scores.fitness)],
        )
        if continues(self.baggage):
            every = [Role.MOVED if role in (Role.PASSED, Role.HELD) else role for role in every]
        free = [i for i, role in enumerate(every) if role is not Role.END or not continues(self.baggage)]
        chosen = self.survival(
            fitness[free], [every[i] for i in free], size=stage.survivors, elites=stage.elites, generator=generator
        )
        if len(chosen) != stage.survivors:
            raise RecipeError(
                f"generation {stage.k} leaves {len(chosen)} individuals, and {stage.survivors} are to be trained next. "
                f"There are too few offspring for a population that grows. Use more offspring, or other kinds."
            )
        return [free[i] for i in chosen]

    def _repr_html_(self) -> str:
        return card("Recipe", {name: in_words(value) for name, value in self.described().items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain tables for TOML and JSON, resolved: every input of Algorithm 1, also those left at their default."""
        return self._spelt(encode)

    def described(self) -> dict[str, Any]:
        """As `to_dict`, but a strategy without an importable name, such as a lambda, is only named: for manifests."""
        return self._spelt(_encode_or_name)

    def _spelt(self, spell: Callable[[Any], Any]) -> dict[str, Any]:
        offspring = self.offspring
        if offspring is None:  # the paper's ratio, written down
            offspring = (
                self.offspring_of(1) if isinstance(self.population, int) else PerIndividual(OFFSPRING_PER_PARENT)
            )
        table = {each.name: spell(getattr(self, each.name)) for each in fields(self)} | {"offspring": spell(offspring)}
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
        inputs = {name: decode(value, allow=allow, name=name) for name, value in table.items()}
        for name in code_names(Recipe, inputs):
            check_allowed(name, allow)
        return Recipe(**inputs)


def _encode_or_name(value: Any) -> Any:
    try:
        return encode(value)
    except RecipeError:
        return f"not importable: {getattr(value, '__qualname__', type(value).__qualname__)}"
