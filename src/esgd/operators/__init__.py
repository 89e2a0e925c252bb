"""The operators of Algorithm 1 as small values: mating, recombination, mutation, survival, back-off and others."""

from esgd.operators.backoff import BestOf, Never, PerEpoch, PerGeneration
from esgd.operators.breeding import breed
from esgd.operators.buffers import Averaged, FromFittest, Reestimated
from esgd.operators.mating import Inverse, Rank, Roulette, Softmax
from esgd.operators.mutation import Gaussian, RelativeGaussian
from esgd.operators.optimizer_state import Carried, CarriedByMate, Fresh
from esgd.operators.recombination import intermediate
from esgd.operators.start import Perturbed, RandomStart, Saved
from esgd.operators.survival import Elitist, anyone, parents_only, trajectories

__all__ = [
    "Averaged",
    "BestOf",
    "Carried",
    "CarriedByMate",
    "Elitist",
    "Fresh",
    "FromFittest",
    "Gaussian",
    "Inverse",
    "Never",
    "PerEpoch",
    "PerGeneration",
    "Perturbed",
    "RandomStart",
    "Rank",
    "Reestimated",
    "RelativeGaussian",
    "Roulette",
    "Saved",
    "Softmax",
    "anyone",
    "breed",
    "intermediate",
    "parents_only",
    "trajectories",
]
