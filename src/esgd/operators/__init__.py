"""The operators of Algorithm 1 as small values: mating, recombination, mutation, survival, back-off and others."""

from esgd.operators.anchor import Anchor
from esgd.operators.backoff import BestOf, BestOfLooks, Never, PerEpoch, PerGeneration
from esgd.operators.breeding import breed
from esgd.operators.buffers import Averaged, FromFittest, Reestimated
from esgd.operators.kinds import Cloned, Extrapolated, GreedySoup, Mated, MeanOfElites, OffspringKind
from esgd.operators.lora import LoraProduct
from esgd.operators.mating import Inverse, Raced, Rank, Roulette, Softmax, Truncation
from esgd.operators.mutation import Gaussian, RelativeGaussian
from esgd.operators.optimizer_state import Carried, CarriedByMate, Fresh, Uninterrupted
from esgd.operators.recombination import intermediate
from esgd.operators.rescaling import Rescaled
from esgd.operators.start import Perturbed, RandomStart, Saved
from esgd.operators.survival import Elitist, Replacement, anyone, parents_only, trajectories

__all__ = [
    "Anchor",
    "Averaged",
    "BestOf",
    "BestOfLooks",
    "Carried",
    "CarriedByMate",
    "Cloned",
    "Elitist",
    "Extrapolated",
    "Fresh",
    "FromFittest",
    "Gaussian",
    "GreedySoup",
    "Inverse",
    "LoraProduct",
    "Mated",
    "MeanOfElites",
    "Never",
    "OffspringKind",
    "PerEpoch",
    "PerGeneration",
    "Perturbed",
    "Raced",
    "RandomStart",
    "Rank",
    "Reestimated",
    "RelativeGaussian",
    "Replacement",
    "Rescaled",
    "Roulette",
    "Saved",
    "Softmax",
    "Truncation",
    "Uninterrupted",
    "anyone",
    "breed",
    "intermediate",
    "parents_only",
    "trajectories",
]
