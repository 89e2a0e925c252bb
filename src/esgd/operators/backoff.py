"""Back-off: "if the fitness degrades, the individual backs off to the previous step" (Algorithm 1).

Every strategy is a choice among places on the trajectory that include its start. That is all Theorem 1 needs of the
SGD step. Worse means strictly worse, as in the proof; NaN and inf are always worse. Restoring brings back
weights, buffers and optimizer state; the next epoch sees a new data order, because order is addressed by epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd.errors import RecipeError
from esgd.protocols import Trajectory
from esgd.validation import check_field

_PROBABILITY = (
    "It is p_backoff, the chance that a degraded individual backs off. Use 1.0 for the guarantee, 0.7 for the Penn "
    "Treebank setting, or Never() for no back-off."
)
_AVERAGE = (
    "It counts the last epoch ends that are averaged into one more candidate. Use average=0 for none, or 2 and more."
)


@dataclass(frozen=True, kw_only=True)
class PerEpoch:
    """Algorithm 1 to the letter: after every epoch, back to the previous one if that was better.

    `probability` relaxes it (Penn Treebank, 0.7: "backing off was deactivated by 0.3 probability"); below 1 the
    guarantee is waived.
    """

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "probability", above=0, at_most=1, meaning=_PROBABILITY)

    @property
    def certain(self) -> bool:
        return self.probability == 1.0

    def checks(self, epochs: int) -> int:
        return epochs

    def __call__(self, trajectory: Trajectory, epochs: int) -> Int[Tensor, " n"]:
        refused = torch.zeros(len(trajectory.fitness), dtype=torch.int64)
        for s in range(epochs):
            previous, before = trajectory.snapshot(), trajectory.fitness
            trajectory.epoch()
            backs_off = degraded(trajectory.measure(), before) & (trajectory.coin(s) < self.probability)
            trajectory.restore(previous, backs_off)
            refused += backs_off
        return refused


@dataclass(frozen=True, kw_only=True)
class PerGeneration:
    """K_s epochs, then back to where the generation began if that was better.

    This is how the paper's CIFAR-10 ("always roll back to the model from the previous generation") and Penn
    Treebank experiments do it. K_s times fewer fitness passes than `PerEpoch`, and an epoch that goes uphill on
    its way to a better place is not cut off.
    """

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_field(self, "probability", above=0, at_most=1, meaning=_PROBABILITY)

    @property
    def certain(self) -> bool:
        return self.probability == 1.0

    def checks(self, epochs: int) -> int:
        return 1

    def __call__(self, trajectory: Trajectory, epochs: int) -> Int[Tensor, " n"]:
        start, before = trajectory.snapshot(), trajectory.fitness
        for _ in range(epochs):
            trajectory.epoch()
        backs_off = degraded(trajectory.measure(), before) & (trajectory.coin(0) < self.probability)
        trajectory.restore(start, backs_off)
        return backs_off.long()


@dataclass(frozen=True, kw_only=True)
class BestOf:
    """The best of {start, every epoch's end, the mean of the last `average` epoch ends}.

    Not in the paper; it keeps the theorem, because the start is a candidate. `average=0` leaves the mean out.
    """

    average: int = 0

    def __post_init__(self) -> None:
        check_field(self, "average", at_least=0, whole=True, meaning=_AVERAGE)
        if self.average == 1:
            raise RecipeError(f"average={self.average} makes no mean. {_AVERAGE}")

    @property
    def certain(self) -> bool:
        return True

    def checks(self, epochs: int) -> int:
        return 1

    def __call__(self, trajectory: Trajectory, epochs: int) -> Int[Tensor, " n"]:
        fitness, snapshots, late = [trajectory.fitness], [trajectory.snapshot()], []
        for s in range(epochs):
            trajectory.epoch()
            fitness.append(trajectory.measure())
            snapshots.append(trajectory.snapshot())
            if epochs - s <= self.average:
                late.append(trajectory.rows.clone())
        if len(late) > 1:
            trajectory.place(torch.stack(late).mean(dim=0))
            fitness.append(trajectory.measure())
            snapshots.append(trajectory.snapshot())
        best = torch.stack(fitness).argmin(dim=0)
        for number, snapshot in enumerate(snapshots):
            trajectory.restore(snapshot, best == number)
        return (best == 0).long() * (epochs > 0)


@dataclass(frozen=True, kw_only=True)
class Never:
    """No back-off: what the baselines do. The guarantee is waived."""

    @property
    def certain(self) -> bool:
        return False

    def checks(self, epochs: int) -> int:
        return 0

    def __call__(self, trajectory: Trajectory, epochs: int) -> Int[Tensor, " n"]:
        for _ in range(epochs):
            trajectory.epoch()
        return torch.zeros_like(trajectory.measure(), dtype=torch.int64)


def degraded(after: Float[Tensor, " n"], before: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """R_n(θ_s) > R_n(θ_{s−1}), strictly; a fitness that is not finite has always degraded.

    >>> degraded(torch.tensor([1.0, 2.0, 3.0, torch.inf]), torch.tensor([2.0, 2.0, 2.0, torch.inf]))
    tensor([False, False,  True,  True])
    """
    return (after > before) | ~after.isfinite()
