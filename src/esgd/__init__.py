"""Evolutionary Stochastic Gradient Descent: train a population of PyTorch networks instead of one."""

from esgd import _serialization, engines, operators, policies, recipe, rules, schedules, sizes, species, stopping
from esgd.algorithm import evolve
from esgd.deploy import Ensemble
from esgd.engines import Loop, Pool, Ray, Vmap
from esgd.errors import EsgdError, StopRun
from esgd.fit import Result, fit
from esgd.generation import Generation, State
from esgd.load import load
from esgd.policies import Policy
from esgd.population import Population
from esgd.recipe import FineTuning, Recipe
from esgd.stopping import Patience, Target
from esgd.tasks import Supervised

__version__ = "0.1.0.dev0"

_serialization.name_shortly(
    policies, schedules, species, operators, engines, recipe, sizes, stopping
)  # what a TOML file names

__all__ = [
    "Ensemble",
    "EsgdError",
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
    "evolve",
    "fit",
    "load",
    "operators",
    "rules",
    "schedules",
    "sizes",
    "species",
    "stopping",
]
