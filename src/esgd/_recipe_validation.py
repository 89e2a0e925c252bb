"""What Algorithm 1 cannot run with: each input is refused with its value, the reason, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping, Set
from math import inf
from typing import TYPE_CHECKING, Any

from esgd._sizes.situation import Situation
from esgd._validation import LARGEST, check_field, check_flag, check_function, check_number, check_species
from esgd.errors import RecipeError, shown
from esgd.operators import Anchor, OffspringKind
from esgd.operators.start import check_network
from esgd.protocols import BackOff, Baggage, BufferRule, Mating, Mutation, Start, Survival, takes_layout
from esgd.sizes import Size, size_in

if TYPE_CHECKING:
    from esgd.recipe import Recipe


CALLED_WITH = {
    "backoff": ("trajectory", "epochs"),
    "mating": ("fitness", "mates", "generator"),
    "mutation": ("row", "sigma", "generator", "genome"),
    "buffers": ("buffers",),
    "start": ("task", "genome", "session", "size", "seeds"),
}
"""What the strategies of a recipe are given, one after another."""

MOST_SCHEDULED = 100_000
"""Generations of a recipe whose sizes change."""

_SIZE = "A size is a number, or a function from a Situation to one. Use for example Funnel(24, 4); see esgd.sizes."
_RECOMBINATION = (
    "It makes one row from (mates), or from (mates, weights, genome). Use None for the rule that suits the network."
)
_SHARE = "It is the weight of a kind in the draw. Use 1, or None for one offspring in every evolution step."
_EPOCHS = "In Algorithm 1 an SGD step has K_s epochs, ours also fractions of one. Use for example 3, 0.5 or Shared(24)."


def check_recipe(recipe: Recipe) -> None:
    """Numbers, strategies, and how they fit together."""
    _check_count("generations", recipe.generations, 1, "the SGD and evolution steps alternate K times")
    _check_count(
        "evolution_steps", recipe.evolution_steps, 0, "a generation has K_v evolution steps; 0 is the ablation"
    )
    _check_size("population", recipe.population, 1, "μ networks are trained")
    if recipe.offspring is not None:
        _check_size("offspring", recipe.offspring, 0, "λ offspring are bred in an evolution step")
    if isinstance(recipe.sgd_epochs, float):
        check_field(recipe, "sgd_epochs", above=0, at_most=LARGEST, meaning=_EPOCHS)
    else:
        _check_size("sgd_epochs", recipe.sgd_epochs, 0, "an SGD step has K_s epochs")
    if callable(recipe.elites):
        check_function("elites", recipe.elites, "situation", meaning=_SIZE)
    if recipe.is_scheduled:
        _check_schedules(recipe)
    if recipe.clock is not None and recipe.fine_tuning is not None:
        raise RecipeError(
            "fine_tuning has its own number of epochs, which cannot follow the clock of sgd_epochs=Timed(…). Use "
            "fine_tuning=None, or a number of epochs."
        )
    if recipe.sgd_epochs == 0 and (recipe.evolution_steps == 0 or recipe.offspring == 0):
        raise RecipeError(
            "sgd_epochs=0 without any offspring trains nothing. A generation is an SGD step, an evolution step, or "
            "both. Use sgd_epochs ≥ 1, or evolution_steps ≥ 1 and offspring ≥ 1."
        )
    _check_strategies(recipe)
    _check_elites(recipe)
    _check_mates(recipe)


def _check_size(name: str, size: object, least: int, meaning: str) -> None:
    """A number, or a function from a `Situation` to one."""
    if callable(size):
        check_function(name, size, "situation", meaning=_SIZE)
    else:
        _check_count(name, size, least, meaning)


def _check_schedules(recipe: Recipe) -> None:
    """Every generation of a recipe whose sizes change, as far as they can be known before."""
    if recipe.generations > MOST_SCHEDULED:
        raise RecipeError(
            f"generations={recipe.generations} is too many for sizes that change: the most is "
            f"{MOST_SCHEDULED}. Use numbers for population, offspring, elites and sgd_epochs, or fewer generations."
        )
    if callable(recipe.population) and recipe.evolution_steps == 0:
        raise RecipeError(
            "evolution_steps=0 keeps every individual, but population changes. Survival is part of the evolution "
            "step. Use evolution_steps=1 with offspring=0 to select without offspring."
        )
    for k in range(1, recipe.generations + 1):
        mu, after, born = recipe.population_of(k), recipe.population_of(k + 1), recipe.offspring_of(k)
        for name, value, least in (("population", min(mu, after), 1), ("offspring", born, 0)):
            if value < least:
                raise RecipeError(
                    f"{name}={shown(getattr(recipe, name))} is {value} in generation {k} or the next, below {least}."
                )
        recipe.epochs_of(k)
        if callable(recipe.elites):
            situation = Situation(k=k, generations=recipe.generations, population=after)
            _check_scheduled_elites(recipe.elites, situation)
        if after > mu + born:
            raise RecipeError(
                f"population={shown(recipe.population)} grows from {mu} to {after} after generation {k}, which has "
                f"only {born} offspring to fill the places. Use more offspring."
            )


def _check_scheduled_elites(elites: Size, situation: Situation) -> None:
    """A fraction of the survivors below 1, or a count."""
    value = size_in("elites", elites, situation)
    if value == 0 or (value > 1 and value != int(value)):
        raise RecipeError(
            f"elites={shown(elites)} is {value} in generation {situation.k}. The best always survives: it is a whole "
            f"number ≥ 1, or a fraction of the survivors below 1. Use for example Each((4, 2, 1)), or elites=0.6."
        )


def settled_mates(mates: Any) -> Any:
    """A list of numbers of mates as a set; of weights, whose keys TOML writes as words, the keys as numbers."""
    if isinstance(mates, Mapping):
        return {int(rho) if str(rho).isdecimal() and len(str(rho)) < 19 else rho: w for rho, w in mates.items()}
    whole = isinstance(mates, set | list | tuple) and all(isinstance(rho, int) for rho in mates)
    return frozenset(mates) if whole else mates


def _check_mates(recipe: Recipe) -> None:
    mates, mu = recipe.mates, recipe.population_of(1)
    counts = mates if isinstance(mates, Set | Mapping) else [mates]
    if all(isinstance(rho, int) and not isinstance(rho, bool) and 1 <= rho <= mu for rho in counts):
        weights = recipe.mate_weights.values()
        numbers = all(isinstance(weight, int | float) and not isinstance(weight, bool) for weight in weights)
        if numbers and all(weight >= 0 for weight in weights) and 0 < sum(weights) < inf:
            return
    raise RecipeError(
        f"mates={shown(set(mates) if isinstance(mates, Set) else mates)} does not fit population={mu}. An offspring "
        f"has ρ distinct parents, so 1 ≤ mates ≤ population. Use mates={min(2, mu)}, or a set such as {{1, 2}}."
    )


def check_immigrants(immigrants: object) -> None:
    if not isinstance(immigrants, tuple | list):
        raise RecipeError(
            f"immigrants is a {type(immigrants).__name__}. Each is a network that competes in every generation: give "
            f"a list of safetensors paths, modules or state dicts, [] for none."
        )
    for i, network in enumerate(immigrants):
        check_network(f"immigrants[{i}]", network)


def _check_strategies(recipe: Recipe) -> None:
    kinds = {"backoff": BackOff, "mating": Mating, "mutation": Mutation, "survival": Survival, "buffers": BufferRule}
    for name, protocol in (kinds | {"baggage": Baggage, "start": Start}).items():
        value = getattr(recipe, name)
        if not _fits(value, protocol):
            raise RecipeError(
                f"{name}={shown(value)} has not the shape of a {protocol.__name__}. Pass a value such as "
                f"{getattr(type(recipe), name)!r}; see esgd.operators, and esgd.protocols for one of your own."
            )
    for name, arguments in CALLED_WITH.items():
        check_function(name, getattr(recipe, name), *arguments, meaning="See esgd.operators and esgd.protocols.")
    check_species("species", recipe.species)
    if (rule := recipe.recombination) is not None:
        handed = ("mates", "weights", "genome") if takes_layout(rule) else ("mates",)
        check_function("recombination", rule, *handed, meaning=_RECOMBINATION)
    check_function(
        "mates_from", recipe.mates_from, "role", meaning="It tells from a Role whether a candidate may mate."
    )
    listed = recipe.kinds if isinstance(recipe.kinds, tuple | list) else ()
    if not listed or not all(_fits(kind, OffspringKind) and callable(kind.tries) for kind in listed):
        raise RecipeError(
            f"kinds={shown(recipe.kinds)} is not a list of kinds of offspring. Use for example kinds=(Mated(),); see "
            f"esgd.operators."
        )
    for i, kind in enumerate(listed):
        if kind.share is not None:
            check_number(f"kinds[{i}].share", kind.share, above=0, meaning=_SHARE)
    object.__setattr__(recipe, "kinds", tuple(recipe.kinds))
    if recipe.anchor is not None and not isinstance(recipe.anchor, Anchor):
        raise RecipeError(f"anchor={shown(recipe.anchor)} is no Anchor. Use Anchor(strength=0.01), or None for none.")
    check_flag(recipe, "early_abort")


def _fits(value: object, protocol: type) -> bool:
    try:
        return isinstance(value, protocol) and not isinstance(value, type)
    except Exception:  # noqa: BLE001  # looking at a property may run code of a strategy that does not fit
        return False


def _check_count(name: str, value: object, least: int, meaning: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        most = f" and below 2^63 = {LARGEST + 1}" if isinstance(value, int) and value > LARGEST else ""
        raise RecipeError(f"{name}={shown(value)} is not a whole number ≥ {least}{most}. In Algorithm 1 {meaning}.")


def _check_elites(recipe: Recipe) -> None:
    m, mu = recipe.elites, recipe.population_of(1)
    if callable(m):
        return
    advice = "Use elites=0.6 for the paper's 60%."
    if isinstance(m, bool) or not isinstance(m, int | float):
        raise RecipeError(f"elites={shown(m)} is neither a count nor a fraction of the population. {advice}")
    if isinstance(m, int) and m > mu and isinstance(recipe.population, int):
        raise RecipeError(
            f"elites={shown(m)} exceeds population={mu}. Algorithm 1 keeps the m best of μ, so 1 ≤ elites ≤ "
            f"population. {advice}"
        )
    if (isinstance(m, int) and m < 1) or (isinstance(m, float) and not 0 < m <= 1):
        raise RecipeError(
            f"elites={shown(m)} is no possible number of elites. Algorithm 1 keeps the m best of μ, with 1 ≤ m ≤ "
            f"μ: a count from 1 to {mu}, or a fraction in (0, 1]. {advice}"
        )
