"""Baggage: which optimizer state an individual brings into its next SGD step.

Algorithm 1 picks a new optimizer in every generation, so the paper's individuals bring none (`Fresh`). State
is dropped whenever the optimizer's kind changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esgd._validation import check_field, check_flag
from esgd.population import OptimizerState

_SHRINK = (
    "SGD that begins again begins at parameters times a number drawn from [1 − shrink, 1]. Use 0.2, or 0 for none."
)


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """No state survives a generation: the paper's rule."""

    @property
    def keeps(self) -> bool:
        return False

    def inherit(self, mates: Sequence[OptimizerState | None]) -> OptimizerState | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A survivor keeps its state; an offspring starts without one."""

    @property
    def keeps(self) -> bool:
        return True

    def inherit(self, mates: Sequence[OptimizerState | None]) -> OptimizerState | None:
        return None


@dataclass(frozen=True, kw_only=True)
class Uninterrupted:
    """SGD is never interrupted: a survivor's next SGD step continues from where the last one ended, with its state,
    whichever place on the way is kept and competes. An offspring begins at its own place.

    What is kept is then the best place that a trajectory has passed, and the guarantee is about these. With `returns`,
    a trajectory whose SGD step has passed nothing fitter begins again at that place, without state: it over-fits, or
    its rate is too high.

    With `shrink`, SGD after a return or a divergence, and that of an offspring, does not begin at the individual itself
    but at its parameters times a number drawn from [1 − shrink, 1], so that it leaves a place where it found nothing
    ("shrink and perturb", Ash and Adams, 2020). What is kept does not change.
    """

    returns: bool = False
    shrink: float = 0.0

    def __post_init__(self) -> None:
        check_flag(self, "returns")
        check_field(self, "shrink", at_least=0, at_most=1, meaning=_SHRINK)

    @property
    def keeps(self) -> bool:
        return True

    @property
    def continues(self) -> bool:
        return True

    def inherit(self, mates: Sequence[OptimizerState | None]) -> OptimizerState | None:
        return None


@dataclass(frozen=True, kw_only=True)
class CarriedByMate:
    """A survivor keeps its state; an offspring takes that of its fittest mate."""

    @property
    def keeps(self) -> bool:
        return True

    def inherit(self, mates: Sequence[OptimizerState | None]) -> OptimizerState | None:
        return mates[0]
