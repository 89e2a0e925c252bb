"""Evolutionary Stochastic Gradient Descent: train a population of PyTorch networks instead of one.

`import esgd` is quick: a public name is imported when it is first used, and PyTorch with it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from esgd import operators, rules, schedules, sizes, species, stopping
    from esgd.algorithm import evolve
    from esgd.budget import Work
    from esgd.deploy import Ensemble
    from esgd.engines import Loop, Pool, Ray, Vmap
    from esgd.errors import EsgdError, StopRun
    from esgd.explain import Explanation, explain
    from esgd.fit import fit
    from esgd.generation import Generation, State
    from esgd.load import load
    from esgd.policies import Policy
    from esgd.population import Population
    from esgd.recipe import FineTuning, Recipe
    from esgd.result import Result
    from esgd.stopping import Patience, Target
    from esgd.tasks import Supervised, scaled

__version__ = "0.1.0.dev0"

__all__ = [
    "Ensemble",
    "EsgdError",
    "Explanation",
    "FineTuning",
    "Generation",
    "Loop",
    "Patience",
    "Policy",
    "Pool",
    "Population",
    "Ray",
    "Recipe",
    "Result",
    "State",
    "StopRun",
    "Supervised",
    "Target",
    "Vmap",
    "Work",
    "evolve",
    "explain",
    "fit",
    "load",
    "operators",
    "rules",
    "scaled",
    "schedules",
    "sizes",
    "species",
    "stopping",
]

_HOMES = {
    "algorithm": ("evolve",),
    "budget": ("Work",),
    "deploy": ("Ensemble",),
    "engines": ("Loop", "Pool", "Ray", "Vmap"),
    "errors": ("EsgdError", "StopRun"),
    "explain": ("Explanation", "explain"),
    "fit": ("fit",),
    "generation": ("Generation", "State"),
    "load": ("load",),
    "policies": ("Policy",),
    "population": ("Population",),
    "recipe": ("FineTuning", "Recipe"),
    "result": ("Result",),
    "stopping": ("Patience", "Target"),
    "tasks": ("Supervised", "scaled"),
}


def __getattr__(name: str) -> Any:
    """A public name, or a public module of ours, at its first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            found = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = found
            return found
    module = f"{__name__}.{name}"
    try:
        if not name.startswith("_"):
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`esgd.fit`, `esgd.load` and `esgd.explain` are the functions, also after the modules of these names were
    imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        is_home = name in _HOMES.get(name, ()) and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if is_home else value)


sys.modules[__name__].__class__ = _Package
