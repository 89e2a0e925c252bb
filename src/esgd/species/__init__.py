"""Species: distributions over optimizers, their hyper-parameters and a learning schedule."""

from esgd.species.distributions import AutoRate, Choice, Integers, LogUniform, Uniform
from esgd.species.inherit import Inherited
from esgd.species.ladder import Ladder
from esgd.species.mixture import Fixed, Mixture, Once
from esgd.species.optimizer_pools import Adam, Optimizer, Sgd

__all__ = [
    "Adam",
    "AutoRate",
    "Choice",
    "Fixed",
    "Inherited",
    "Integers",
    "Ladder",
    "LogUniform",
    "Mixture",
    "Once",
    "Optimizer",
    "Sgd",
    "Uniform",
]
