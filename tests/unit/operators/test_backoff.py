"""Back-off on a written landscape: several individuals at once, every place known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from esgd._tensors.averages import IterateAverage
from esgd.errors import RecipeError
from esgd.operators import BestOf, BestOfLooks, Never, PerEpoch, PerGeneration
from esgd.operators.backoff import degraded


class Landscape:
    """A trajectory of n individuals along a line. Epoch s adds `strides[s]`; the fitness of a place is looked up."""

    def __init__(
        self,
        heights: Sequence[dict[float, float]],
        strides: Sequence[float] = (1, 1, 1, 1),
        coins: Sequence[float] = (),
    ) -> None:
        self.heights, self.strides, self.coins = heights, strides, coins
        self.place_, self.epochs, self.measured = torch.zeros(len(heights), 1), 0, 0
        self.fitness = self._look()

    @property
    def rows(self) -> Tensor:
        return self.place_

    def epoch(self) -> None:
        self.place_ = self.place_ + self.strides[self.epochs]
        self.epochs += 1
        self.fitness = torch.full_like(self.fitness, nan)

    def train(self, until: float, averages: Sequence[IterateAverage] = ()) -> None:
        while self.epochs < until:
            self.epoch()
            for average in averages:
                average.take([self.place_], epochs=1.0)

    def measure(self) -> Tensor:
        self.measured += 1
        self.fitness = self._look()
        return self.fitness

    def snapshot(self) -> tuple[Tensor, Tensor]:
        return self.place_.clone(), self.fitness.clone()

    def restore(self, snapshot: tuple[Tensor, Tensor], where: Tensor) -> None:
        self.place_ = torch.where(where[:, None], snapshot[0], self.place_)
        self.fitness = torch.where(where, snapshot[1], self.fitness)

    def place(self, rows: Tensor) -> None:
        self.place_ = rows
        self.fitness = torch.full_like(self.fitness, nan)

    def place_average(self, average: IterateAverage) -> None:
        self.place(average.tensors[0])

    def coin(self, number: int) -> Tensor:
        return torch.full_like(self.fitness, self.coins[number] if self.coins else 0.0)

    def _look(self) -> Tensor:
        found = [h[x] for h, x in zip(self.heights, self.place_.flatten().tolist(), strict=True)]
        return torch.tensor([f if f == f else inf for f in found], dtype=torch.float64)


def trajectory(
    strategy: Any, *heights: dict[float, float], epochs: int = 2, **rest: Any
) -> tuple[Landscape, list[int]]:
    landscape = Landscape(heights, **rest)
    refused = strategy(landscape, epochs)
    assert landscape.epochs == epochs, "every strategy trains K_s epochs"
    return landscape, refused.tolist()


def where(landscape: Landscape) -> list[float]:
    return landscape.rows.flatten().tolist()


UPHILL = {0: 1.0, 1: 2.0, 2: 3.0}
DOWNHILL = {0: 3.0, 1: 2.0, 2: 1.0}
OVER_A_HILL = {0: 2.0, 1: 3.0, 2: 1.0}
INTO_A_DIP = {0: 2.0, 1: 1.0, 2: 3.0}
FLAT = {0: 1.0, 1: 1.0, 2: 1.0}
OFF_A_CLIFF = {0: 1.0, 1: nan, 2: inf}


def test_per_epoch_goes_back_to_the_previous_epoch() -> None:
    landscape, refused = trajectory(PerEpoch(), UPHILL, DOWNHILL, INTO_A_DIP, FLAT, OFF_A_CLIFF)
    assert where(landscape) == [0, 2, 1, 2, 0]
    assert landscape.fitness.tolist() == [1, 1, 1, 1, 1]
    assert refused == [2, 0, 1, 0, 2]
    assert landscape.measured == 2


def test_per_epoch_goes_on_from_where_it_went_back_to() -> None:
    """The first epoch is refused, and the second starts at 0 again: 0 → 5 → (back) 0 → 2."""
    landscape, refused = trajectory(PerEpoch(), {0: 2.0, 5: 3.0, 2: 1.0}, strides=(5, 2))
    assert (where(landscape), refused) == ([2], [1])


def test_per_generation_looks_at_the_end_only() -> None:
    landscape, refused = trajectory(PerGeneration(), UPHILL, DOWNHILL, OVER_A_HILL, INTO_A_DIP, FLAT, OFF_A_CLIFF)
    assert where(landscape) == [0, 2, 2, 0, 2, 0]
    assert refused == [1, 0, 0, 1, 0, 1]
    assert landscape.measured == 1, "K_s times fewer fitness passes"


def test_best_of_takes_the_best_place_on_the_way() -> None:
    landscape, refused = trajectory(BestOf(), UPHILL, DOWNHILL, OVER_A_HILL, INTO_A_DIP, FLAT, OFF_A_CLIFF)
    assert where(landscape) == [0, 2, 2, 1, 0, 0]
    assert landscape.fitness.tolist() == [1, 1, 1, 1, 1, 1]
    assert refused == [1, 0, 0, 0, 1, 1]


def test_best_of_tries_the_mean_of_the_last_epochs_too() -> None:
    """Places 0, 1, 2, 3; the mean of the last two ends is 2.5."""
    valley = {0: 9.0, 1: 8.0, 2: 3.0, 3: 3.0, 2.5: 1.0}
    ridge = {0: 9.0, 1: 8.0, 2: 3.0, 3: 4.0, 2.5: 5.0}
    landscape, refused = trajectory(BestOf(average=2), valley, ridge, epochs=3)
    assert where(landscape) == [2.5, 2]
    assert landscape.fitness.tolist() == [1, 3]
    assert refused == [0, 0]
    landscape, _ = trajectory(BestOf(), valley, epochs=3)
    assert landscape.measured == 3, "without `average` no mean is tried"


def test_best_of_averages_no_more_ends_than_there_are() -> None:
    landscape, _ = trajectory(BestOf(average=5), {0: 9.0, 1: 5.0, 2: 4.0, 1.5: 1.0})
    assert where(landscape) == [1.5], "the mean of both ends, without the start"


def test_never_stays_where_it_lands() -> None:
    landscape, refused = trajectory(Never(), UPHILL, OFF_A_CLIFF)
    assert where(landscape) == [2, 2]
    assert landscape.fitness.tolist() == [3, inf]
    assert refused == [0, 0]


@pytest.mark.parametrize(("coin", "place"), [(0.69, 0), (0.71, 1)])
def test_relaxed_back_off_happens_with_its_probability(coin: float, place: float) -> None:
    for strategy in (PerEpoch(probability=0.7), PerGeneration(probability=0.7)):
        landscape, refused = trajectory(strategy, UPHILL, epochs=1, coins=[coin])
        assert where(landscape) == [place]
        assert refused == [1 - place]


def test_a_coin_is_tossed_for_every_epoch() -> None:
    landscape, refused = trajectory(PerEpoch(probability=0.5), UPHILL, coins=[0.9, 0.1])
    assert (where(landscape), refused) == ([1], [1])


def test_only_what_can_never_end_worse_is_certain() -> None:
    assert PerEpoch().certain
    assert PerGeneration().certain
    assert BestOf().certain
    assert BestOf(average=3).certain
    assert not PerEpoch(probability=0.7).certain
    assert not PerGeneration(probability=0.999).certain
    assert not Never().certain


def test_checks_count_the_comparisons_of_a_step() -> None:
    assert [strategy.checks(5) for strategy in (PerEpoch(), PerGeneration(), BestOf(), Never())] == [5, 1, 1, 0]


heights = st.dictionaries(
    st.sampled_from([0.5 * i for i in range(9)]), st.floats(0, 9) | st.sampled_from([inf, nan]), min_size=9
)


@given(st.lists(heights, min_size=1, max_size=4), st.integers(0, 4))
def test_a_certain_strategy_never_ends_worse_than_it_began_on_any_landscape(
    landscape: list[dict[float, float]], epochs: int
) -> None:
    for strategy in (PerEpoch(), PerGeneration(), BestOf(), BestOf(average=2)):
        walked, _ = trajectory(strategy, *landscape, epochs=epochs)
        started = Landscape(landscape).fitness
        assert (walked.fitness <= started).all()
        assert torch.equal(walked.fitness, walked._look()), "the fitness is that of the place it stands on"


def test_degraded_means_strictly_worse_or_not_finite() -> None:
    after = torch.tensor([1.0, 2.0, 3.0, inf, nan, 1.0], dtype=torch.float64)
    before = torch.tensor([2.0, 2.0, 2.0, inf, 2.0, inf], dtype=torch.float64)
    assert degraded(after, before).tolist() == [False, False, True, True, True, False]


@pytest.mark.parametrize("strategy", [PerEpoch, PerGeneration])
@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, nan, inf])
def test_a_probability_outside_its_range_is_refused(strategy: Any, probability: float) -> None:
    with pytest.raises(RecipeError, match=r"is not in \(0, 1\].*p_backoff.*Never\(\) for no back-off") as caught:
        strategy(probability=probability)
    assert f"probability={probability}" in str(caught.value)


@pytest.mark.parametrize("average", [1, -1])
def test_a_mean_of_one_or_fewer_is_refused(average: int) -> None:
    with pytest.raises(
        RecipeError, match=f"average={average} (makes no mean|is below 0).*Use average=0 for none, or 2 and more"
    ):
        BestOf(average=average)


def test_looks_find_a_dip_on_the_way_and_a_mean_between_two_ends() -> None:
    landscape, refused = trajectory(BestOfLooks(mean=0.0), INTO_A_DIP, UPHILL, DOWNHILL)
    assert where(landscape) == [1, 0, 2]
    assert refused == [0, 1, 0]
    assert landscape.measured == 2
    valley = {0: 3.0, 1: 3.0, 2: 2.0, 3: 0.5, 4: 2.0}
    landscape, _ = trajectory(BestOfLooks(looks=(), every=1), {**valley, 3.5: 0.1}, epochs=4)
    assert where(landscape) == [3.5], "the mean of the places after 3 and 4 epochs"


def test_an_exponential_average_is_a_candidate_too() -> None:
    heights = {0: 9.0, 1: 8.0, 2: 7.0}
    average = IterateAverage(every=1, memory=1.0)
    for at in (1.0, 2.0):
        average.take([torch.tensor(at)], epochs=1.0)
    between = float(average.tensors[0])
    assert 1.5 < between < 2.0, "later places weigh more"
    landscape, _ = trajectory(BestOfLooks(looks=(), mean=0.0, every=1, ema=1.0), {**heights, between: 1.0})
    assert where(landscape) == [between]
