"""Back-off: "if the fitness degrades, the individual backs off to the previous step" (Algorithm 1).

Every strategy is a choice among places on the trajectory that include its start. That is all Theorem 1 needs of the
SGD step. Worse means strictly worse, as in the proof; NaN and inf are always worse. Restoring brings back
weights, buffers and optimizer state; the next epoch sees a new data order, because order is addressed by epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from esgd._averages import IterateAverage
from esgd._validation import check_field, check_list, check_number
from esgd.errors import RecipeError
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
    "known. Use rescale=0.25, or 0 for none."
)
SCALES = tuple(exp(sign * step) for step in (0.1, 0.2, 0.4, 0.8) for sign in (1, -1))
"""What an output is multiplied by. Each costs one loss of the output; the network is not run again."""
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

    With `rescale` every place but the start competes with its output multiplied by the number that suits it best, of
    `SCALES` and 1 (temperature scaling, Guo et al., 2017). So places are compared by what they tell apart, and less by
    how sure they are. The number is in the parameters of the last layer, and SGD continues from those that it had
    itself. Best is the lowest fitness plus x² / (2 · `rescale`² · samples) with the logarithm x of the number, times
    the fitness if that is above 1: with a cross-entropy the posterior of x, given so many samples and a normal prior.
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
        check_field(self, "rescale", at_least=0, meaning=_RESCALE)

    @property
    def certain(self) -> bool:
        return True

    def checks(self, epochs: float) -> int:
        return 1

    def __call__(self, trajectory: Trajectory, epochs: float) -> Int[Tensor, " n"]:
        places, late = _Places(trajectory), IterateAverage(every=self.every)
        averages = [IterateAverage(every=self.every, memory=self.ema)] if self.ema is not None else []
        looks = {*self.looks, 1.0} if epochs else set()
        for fraction in sorted({*looks, *([1.0 - self.mean] if self.mean and epochs else ())}):
            trajectory.train(fraction * epochs, averages)
            if fraction in looks:
                self._look(trajectory, places, back=fraction < 1.0)
            if fraction == 1.0 - self.mean:
                averages.append(late)
        for average in averages:
            if average.tensors:
                trajectory.place_average(average)
                self._look(trajectory, places, back=False)
        return places.keep_best()

    def _look(self, trajectory: Trajectory, places: _Places, *, back: bool) -> None:
        """Add where the trajectory stands, rescaled if that is wanted; then go `back` if SGD continues from here."""
        if not self.rescale:
            places.add()
            return
        scaled = trajectory.measure_scaled(SCALES)
        here = trajectory.snapshot() if back else None
        trajectory.scale(*best_scales(trajectory.fitness, scaled, samples=trajectory.samples, width=self.rescale))
        places.add_measured(trajectory.fitness)
        if back:
            trajectory.restore(here, torch.ones(scaled.shape[1], dtype=torch.bool))


def best_scales(
    plain: Float[Tensor, " n"], scaled: Float[Tensor, "s n"], *, samples: int, width: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Of 1 and `SCALES` the best number for each individual, and its fitness with that.

    >>> best_scales(torch.tensor([0.5]), torch.linspace(0.55, 0.2, 8)[:, None], samples=100, width=1.0)
    (tensor([0.4493]), tensor([0.2000]))
    """
    x = torch.tensor(SCALES, dtype=plain.dtype).log()[:, None]
    penalty = x**2 / (2 * width**2 * max(1, samples)) * plain.abs().clamp(min=1.0)
    best = torch.cat([plain[None], torch.where(scaled.isnan(), inf, scaled) + penalty]).argmin(dim=0, keepdim=True)
    known = torch.tensor((1.0, *SCALES), dtype=plain.dtype)[:, None].expand(-1, len(plain))
    return known.gather(0, best)[0], torch.cat([plain[None], scaled]).gather(0, best)[0]


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
    """Places on a trajectory, its start first, and their fitness."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._fitness, self._snapshots = [trajectory.fitness], [trajectory.snapshot()]

    def add(self) -> None:
        """Where the trajectory stands."""
        self.add_measured(self._trajectory.measure())

    def add_measured(self, fitness: Float[Tensor, " n"]) -> None:
        """The same, where its fitness is known."""
        self._fitness.append(fitness)
        self._snapshots.append(self._trajectory.snapshot())

    def keep_best(self) -> Int[Tensor, " n"]:
        """Go to the best place, the earliest if there are several; returns 1 where that is the start after all."""
        best = torch.stack(self._fitness).argmin(dim=0)
        for number, snapshot in enumerate(self._snapshots):
            self._trajectory.restore(snapshot, best == number)
        return (best == 0).long() * (len(self._snapshots) > 1)


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
