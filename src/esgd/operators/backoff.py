"""Back-off: "if the fitness degrades, the individual backs off to the previous step" (Algorithm 1).

Every strategy is a choice among places on the trajectory that include its start. That is all Theorem 1 needs of the
SGD step. Worse means strictly worse, as in the proof; NaN and inf are always worse. Restoring brings back
weights, buffers and optimizer state; the next epoch sees a new data order, because order is addressed by epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd._tensors.averages import IterateAverage
from esgd._validation import check_field, check_list, check_number
from esgd.errors import RecipeError
from esgd.operators.rescaling import SCALES, best_scales
from esgd.protocols import Trajectory

_PROBABILITY = (
    "It is p_backoff, the chance that a degraded individual backs off. Use 1.0 for the guarantee, 0.7 for the Penn "
    "Treebank setting, or Never() for no back-off."
)
_AVERAGE = (
    "It counts the last epoch ends that are averaged into one more candidate. Use average=0 for none, or 2 and more."
)


_LOOKS = "They are fractions of the SGD step at which the fitness is taken. Use looks=(0.5,), or () for the end alone."
_MEAN = "It is the last part of the SGD step whose iterates are averaged. Use mean=0.5 for half of it, 0 for none."
_EVERY = "Every so many steps an iterate is averaged. Use every=2."
_RESCALE = (
    "It is the standard deviation of the logarithm of the number that an output is multiplied by, before anything is "
    "known. Use rescale=0.12, or 0 for none."
)
MOST_RESCALE = 10.0
_EMA = "It is the number of epochs that the exponential average remembers. Use ema=2, or None for none."


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

    def checks(self, epochs: float) -> int:
        return ceil(epochs)

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]:
        refused = torch.zeros(len(trajectory.fitness), dtype=torch.int64)
        for s, end in enumerate(_epoch_ends(epochs)):
            previous, before = trajectory.snapshot(), trajectory.fitness
            trajectory.train(end)
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

    def checks(self, epochs: float) -> int:
        return 1

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]:
        start, before = trajectory.snapshot(), trajectory.fitness
        trajectory.train(epochs)
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

    def checks(self, epochs: float) -> int:
        return 1

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]:
        places, late, ends = _Places(trajectory), list[Tensor](), _epoch_ends(epochs)
        for s, end in enumerate(ends):
            trajectory.train(end)
            places.add()
            if len(ends) - s <= self.average:
                late.append(trajectory.rows.clone())
        if len(late) > 1:
            trajectory.place(torch.stack(late).mean(dim=0))
            places.add()
        return places.keep_best()


@dataclass(frozen=True, kw_only=True)
class BestOfLooks:
    """The best of {start, looks on the way, end, the mean of late iterates, their exponential average}.

    | field     | meaning                                                                                   |
    |-----------|-------------------------------------------------------------------------------------------|
    | `looks`   | at which fractions of the SGD step the fitness is taken, besides its end                  |
    | `mean`    | the last part of the SGD step whose iterates are averaged; 0 for none                     |
    | `every`   | of these, every so many steps                                                             |
    | `ema`     | epochs that an exponential average of all iterates remembers; None for none               |
    | `rescale` | how far the output of a place may be rescaled, see below; 0 for not at all                |

    Not in the paper; it keeps the theorem, because the start is a candidate. Each look and each average is one fitness
    pass; an average is one more row in memory while the SGD step lasts.

    With `rescale` one more place competes: the most promising one with its output multiplied by a number (temperature
    scaling, Guo et al., 2017). Places are then compared by what they tell apart, and less by how sure they are. The
    look at a place also tells what to expect of it at other scales (`best_scales`). The best of all is measured, which
    is one more fitness pass, with the number in the parameters of the last layer. A network without a layer that
    multiplies its output, or a fitness that is no function of the output, has no such place.
    """

    looks: tuple[float, ...] = (0.5,)
    mean: float = 0.5
    every: int = 2
    ema: float | None = None
    rescale: float = 0.0

    def __post_init__(self) -> None:
        looks = check_list("looks", self.looks, meaning=_LOOKS)
        object.__setattr__(
            self,
            "looks",
            tuple(check_number(f"looks[{i}]", at, above=0, at_most=1, meaning=_LOOKS) for i, at in enumerate(looks)),
        )
        check_field(self, "mean", at_least=0, at_most=1, meaning=_MEAN)
        check_field(self, "every", at_least=1, whole=True, meaning=_EVERY)
        if self.ema is not None:
            check_field(self, "ema", above=0, meaning=_EMA)
        check_field(self, "rescale", at_least=0, at_most=MOST_RESCALE, meaning=_RESCALE)

    @property
    def certain(self) -> bool:
        return True

    def checks(self, epochs: float) -> int:
        return 1

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]:
        places, late = _Places(trajectory, self.rescale), IterateAverage(every=self.every)
        averages = [IterateAverage(every=self.every, memory=self.ema)] if self.ema is not None else []
        looks = {*self.looks, 1.0} if epochs else set()
        for fraction in sorted({*looks, *([1.0 - self.mean] if self.mean and epochs else ())}):
            trajectory.train(fraction * epochs, averages)
            if fraction in looks:
                places.add()
            if fraction == 1.0 - self.mean:
                averages.append(late)
        for average in averages:
            if average.tensors:
                trajectory.place_average(average)
                places.add()
        if epochs:
            places.add_rescaled()
        return places.keep_best()


@dataclass(frozen=True, kw_only=True)
class Never:
    """No back-off: what the baselines do. The guarantee is waived."""

    @property
    def certain(self) -> bool:
        return False

    def checks(self, epochs: float) -> int:
        return 0

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]:
        trajectory.train(epochs)
        return torch.zeros_like(trajectory.measure(), dtype=torch.int64)


class _Places:
    """Places on a trajectory, its start first, and their fitness; with `rescale` also what to expect of each if its
    output is multiplied by the number that suits it best."""

    def __init__(self, trajectory: Trajectory, rescale: float = 0.0) -> None:
        self._trajectory, self._width = trajectory, rescale if rescale and trajectory.scalable else 0.0
        self._fitness, self._snapshots = [trajectory.fitness], [trajectory.snapshot()]
        self._factors, self._expected = [torch.ones_like(trajectory.fitness)], [trajectory.fitness]

    def add(self) -> None:
        """Where the trajectory stands."""
        if not self._width:
            self._fitness.append(self._trajectory.measure())
        else:
            scaled = self._trajectory.measure_scaled(SCALES)
            plain, samples = self._trajectory.fitness, self._trajectory.samples
            factors, expected = best_scales(plain, scaled, samples=samples, width=self._width)
            self._fitness.append(plain)
            self._factors.append(factors)
            self._expected.append(expected)
        self._snapshots.append(self._trajectory.snapshot())

    def add_rescaled(self) -> None:
        """The most promising place with its output rescaled: what is expected of it is measured."""
        if not self._width:
            return
        promising = self._go_to(torch.stack(self._expected).argmin(dim=0))
        self._trajectory.scale(torch.stack(self._factors).gather(0, promising[None])[0])
        self._fitness.append(self._trajectory.measure())
        self._snapshots.append(self._trajectory.snapshot())

    def keep_best(self) -> Int[Tensor, " n"]:
        """Go to the best place, the earliest if there are several; returns 1 where that is the start after all."""
        best = self._go_to(torch.stack(self._fitness).argmin(dim=0))
        return (best == 0).long() * (len(self._snapshots) > 1)

    def _go_to(self, places: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        for number, snapshot in enumerate(self._snapshots):
            self._trajectory.restore(snapshot, places == number)
        return places


def _epoch_ends(epochs: float) -> list[float]:
    """After how many epochs an epoch ends, the last one perhaps before its time.

    >>> _epoch_ends(2), _epoch_ends(1.5)
    ([1, 2], [1, 1.5])
    """
    return [min(s, epochs) for s in range(1, ceil(epochs) + 1)]


def degraded(after: Float[Tensor, " n"], before: Float[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """R_n(θ_s) > R_n(θ_{s−1}), strictly; a fitness that is not finite has always degraded.

    >>> degraded(torch.tensor([1.0, 2.0, 3.0, torch.inf]), torch.tensor([2.0, 2.0, 2.0, torch.inf]))
    tensor([False, False,  True,  True])
    """
    return (after > before) | ~after.isfinite()
