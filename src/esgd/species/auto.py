"""Learning rates that a range test finds: `lr="auto"` in a pool, and `species="auto"` in a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

import torch

from esgd.errors import RecipeError, did_you_mean, shown
from esgd.policies import Policy, optimizer_class
from esgd.protocols import Draw, Species, SpeciesLike
from esgd.randomness import Seeds
from esgd.ranges import FoundRange, pool_name
from esgd.schedules import Constant
from esgd.species.distributions import AutoRate, Uniform
from esgd.species.mixture import Mixture
from esgd.species.optimizer_pools import Adam, Optimizer, Sgd, optimizer_of

Pool = Sgd | Adam | Optimizer

AUTO: Species = Mixture(species=(Sgd(lr=AutoRate()), Adam(lr=AutoRate())))
"""What `species="auto"` means: the pools of `Recipe()`, with ranges that are found."""


def settled_species(species: SpeciesLike, name: str = "species") -> Species:
    """The species that a word or an optimizer class stands for; anything else is returned as it is.

    >>> settled_species("adam") == settled_species(torch.optim.Adam) == Adam(lr="auto")
    True
    """
    if isinstance(species, torch.optim.Optimizer):
        raise RecipeError(
            f"{name}=… is an optimizer with its parameters, but each individual makes one for its own network. Pass "
            f"the class: {_written(type(species))}."
        )
    if isinstance(species, type) and issubclass(species, torch.optim.Optimizer):
        _check_class(species)
        return _pool(_name_of(species))
    if not isinstance(species, str):
        return cast(Species, species)
    if species == "auto":
        return AUTO
    try:
        found = optimizer_class(species)
    except RecipeError as error:
        known = ["auto", *(name.lower() for name, each in vars(torch.optim).items() if isinstance(each, type))]
        raise RecipeError(
            f"{name}={shown(species)} is neither 'auto' nor an optimizer: its learning rates are found before "
            f"generation 1. {did_you_mean(species.lower(), known)}"
        ) from error
    _check_class(found)
    return _pool(species.lower() if ":" not in species else species)


def _check_class(cls: type[torch.optim.Optimizer]) -> None:
    """Refuse classes that cannot train a network by themselves."""
    if cls is torch.optim.Optimizer:
        raise RecipeError(
            "species=torch.optim.Optimizer is what optimizers are derived from, and does not train. Pass one of them: "
            "torch.optim.Adam."
        )
    if cls is torch.optim.SparseAdam:
        raise RecipeError(
            "species=torch.optim.SparseAdam takes sparse gradients only, and layers such as nn.Linear have none. Pass "
            "torch.optim.Adam."
        )


def _written(cls: type) -> str:
    return f"torch.optim.{cls.__name__}" if getattr(torch.optim, cls.__name__, None) is cls else cls.__qualname__


def _pool(name: str) -> Pool:
    pools = {"sgd": Sgd, "adam": Adam}
    return pools[name](lr=AutoRate()) if name in pools else Optimizer(name=name, lr=AutoRate())


def _name_of(cls: type[torch.optim.Optimizer]) -> str:
    short = cls.__name__.lower()
    if getattr(torch.optim, cls.__name__, None) is cls:
        return short
    return f"{cls.__module__}:{cls.__qualname__}"


def auto_pools(species: Any) -> dict[str, Pool]:
    """The pools inside a species whose rates are to be found, by optimizer: "sgd", and "sgd 2" for a second one that
    differs from the first.

    Species are looked for in the fields of dataclasses, in lists and in tables.

    >>> list(auto_pools(Mixture(species=(Sgd(lr="auto"), Sgd(lr="auto", momentum=0.99), Sgd(lr="auto")))))
    ['sgd', 'sgd 2']
    """
    found = dict[str, list[Pool]]()
    for pool in _pools(species):
        of_one = found.setdefault(optimizer_of(pool), [])
        if pool not in of_one:
            of_one.append(pool)
    return {pool_name(name, number): pool for name, pools in found.items() for number, pool in enumerate(pools, 1)}


def found_tops(species: Any, ranges: Sequence[FoundRange]) -> dict[str, float]:
    """The highest learning rates that were found, as a draw has them: by optimizer, and for a further pool of one by
    its words."""
    pools = auto_pools(species)
    return {repr(pools[each.name]) if each.pool > 1 and each.name in pools else each.name: each.top for each in ranges}


def _pools(value: Any) -> Iterator[Pool]:
    if isinstance(value, Sgd | Adam | Optimizer):
        if isinstance(value.lr, AutoRate):
            yield value
    elif isinstance(value, Mapping):
        yield from _pools(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _pools(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _pools(tuple(getattr(value, each.name, None) for each in fields(value)))


def settled_range(pool: Pool, found: FoundRange) -> FoundRange:
    """The range that a pool draws from after a test has found this."""
    assert isinstance(pool.lr, AutoRate)
    return pool.lr.settled(found)


def tested_policy(pool: Pool, seeds: Seeds) -> Policy:
    """What the range test trains with: a draw of the pool without schedule and annealing. The rate is put in later.

    Momentum that is drawn from a range is the middle of it.
    """
    if isinstance(pool, Sgd) and isinstance(pool.momentum, Uniform):
        middle = (pool.momentum.low + pool.momentum.high) / 2
        pool = replace(pool, momentum=middle, momentum_probability=1.0, nesterov_probability=0.0)
    policy = pool(Draw(k=1, j=0, generations=1, stream=seeds))
    return replace(policy, schedule=Constant(), annealing=1.0)
