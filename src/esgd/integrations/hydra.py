"""Hydra and OmegaConf: a recipe from a config, and a config from a recipe. The one file that imports omegaconf."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from esgd.errors import MissingExtraError, RecipeError, shown
from esgd.recipe import Recipe

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["config", "recipe"]

TARGETS = ("_target_", "_partial_", "_args_")
"""What `hydra.utils.instantiate` reads."""


def recipe(cfg: DictConfig | Mapping[str, Any], *, allow: Collection[str] = ()) -> Recipe:
    """The recipe that a config describes: tables as in TOML, a strategy by its `kind`. What is left out is the default.

    A config is data. It names our own values, and code of the packages in `allow`; `_target_` is refused.
    Interpolations are resolved, with OmegaConf's resolvers and those that your program has registered.

    >>> recipe({"population": 8, "mutation": {"kind": "gaussian", "sigma": 0.01}}).mutation.sigma
    0.01
    """
    package = _package()
    table = cfg
    if isinstance(cfg, package.DictConfig):
        try:
            table = package.OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        except package.errors.OmegaConfBaseException as error:
            said = str(error).splitlines()[0]
            raise RecipeError(
                f"the config cannot be read: {said}. Give the missing value, or correct the interpolation."
            ) from error
    _refuse_targets(table, "recipe")
    return Recipe.from_dict(table, allow=allow)


def config(recipe: Recipe) -> DictConfig:
    """A recipe as a config, with every default written out: for a file of Hydra, or to compose with others.

    But λ, where it is left at 4 μ, stays out: it follows a population that is overridden later.

    >>> config(Recipe(population=8)).population
    8
    """
    table = recipe.to_dict()
    if recipe.offspring is None:
        del table["offspring"]
    return _package().OmegaConf.create(table)  # type: ignore[no-any-return]


def _refuse_targets(value: Any, path: str) -> None:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        if name in TARGETS:
            raise RecipeError(
                f"{path}.{name}={shown(item)} is for hydra.utils.instantiate, which runs any code that a file names. A "
                f"recipe names strategies by their kind: kind: sgd, or kind: package.module:Class with allow=[…]."
            )
        _refuse_targets(item, f"{path}.{name}")


def _package() -> Any:
    try:
        import omegaconf
    except ImportError as error:
        raise MissingExtraError("omegaconf", "hydra", "A recipe from a config") from error
    return omegaconf
