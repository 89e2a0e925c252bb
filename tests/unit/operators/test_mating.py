"""Who mates: the roulette wheel and its siblings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from esgd.errors import RecipeError
from esgd.operators import Inverse, Raced, Rank, Roulette, Softmax
from esgd.randomness import Seeds

WHEELS = [Roulette(), Inverse(), Rank(), Softmax()]
every_wheel = pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: type(wheel).__name__)


def f64(*losses: float) -> Tensor:
    return torch.tensor(losses, dtype=torch.float64)


def frequencies(wheel: Any, fitness: Tensor, turns: int = 1000) -> list[float]:
    seeds = Seeds(0)
    drawn = Counter(wheel(fitness, 1, seeds(i))[0] for i in range(turns))
    return [drawn[i] / turns for i in range(len(fitness))]


losses = st.lists(st.floats(-1e6, 1e6) | st.sampled_from([inf, -inf, nan]), min_size=1, max_size=10)


@every_wheel
@example(values=[5e-324, 1.0, 2.0], mates=3, seed=0)
@given(values=losses, mates=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_mates_are_distinct_and_finite_where_anybody_is(wheel: Any, values: list[float], mates: int, seed: int) -> None:
    chosen = wheel(f64(*values), mates, Seeds(seed)())
    finite = [i for i, value in enumerate(values) if abs(value) < inf]
    assert len(chosen) == len(set(chosen)) == min(mates, len(finite) or len(values))
    assert set(chosen) <= set(finite or range(len(values)))


@every_wheel
def test_the_fitter_mates_more_often(wheel: Any) -> None:
    best, middle, worst = frequencies(wheel, f64(1, 2, 3))
    assert best > middle + 0.05 > worst + 0.1


@pytest.mark.slow
@every_wheel
def test_nan_and_inf_are_never_drawn(wheel: Any) -> None:
    share = frequencies(wheel, f64(nan, 1, inf, 2, -inf))
    assert share[0] == share[2] == share[4] == 0
    assert share[1] > share[3] > 0


@every_wheel
def test_where_nobody_is_finite_everybody_has_the_same_chance(wheel: Any) -> None:
    assert frequencies(wheel, f64(nan, inf, inf)) == pytest.approx([1 / 3] * 3, abs=0.06)


@pytest.mark.slow
@every_wheel
def test_where_all_are_equally_fit_everybody_has_the_same_chance(wheel: Any) -> None:
    assert frequencies(wheel, f64(0.3, 0.3, 0.3)) == pytest.approx([1 / 3] * 3, abs=0.06)


@every_wheel
def test_equally_fit_individuals_weigh_the_same(wheel: Any) -> None:
    weights = wheel.weights(f64(1, 2, 2, 3)).tolist()
    assert weights[1] == weights[2]


def test_the_worst_keeps_a_small_chance_on_the_windowed_wheel() -> None:
    share = frequencies(Roulette(floor=0.1), f64(1, 2), turns=3000)
    assert share[1] == pytest.approx(0.1 / 1.2, abs=0.02)


def test_close_losses_are_told_apart_by_the_window_but_not_by_their_inverse() -> None:
    """The paper's CIFAR-10 elites: 0.0142 to 0.0159."""
    elites = f64(0.0142, 0.0159)
    windowed, inverse = Roulette().weights(elites), Inverse().weights(elites)
    assert float(windowed[0] / windowed[1]) == pytest.approx(101)
    assert float(inverse[0] / inverse[1]) == pytest.approx(1.12, abs=0.01)


def test_the_window_does_not_care_about_the_scale_or_the_origin_of_the_fitness() -> None:
    fitness = f64(0.5, 0.1, 0.9)
    plain = Roulette().weights(fitness)
    assert torch.allclose(Roulette().weights(1000 * fitness - 7), 1000 * plain)


def test_no_loss_at_all_weighs_as_much_as_the_smallest_one_under_the_inverse() -> None:
    assert Inverse().weights(f64(0, -1, 0.5, 1)).tolist() == [1, 1, 1, 0.5]
    assert Inverse().weights(f64(0, -1)).tolist() == [1, 1]


@pytest.mark.slow
def test_smoothing_zero_is_a_uniform_wheel() -> None:
    for wheel in (Roulette(smoothing=0), Inverse(smoothing=0), Rank(smoothing=0), Softmax(smoothing=0)):
        assert frequencies(wheel, f64(1, 2, 9)) == pytest.approx([1 / 3] * 3, abs=0.06)


def test_the_temperature_is_in_units_of_the_spread() -> None:
    wheel, fitness = Softmax(temperature=0.5), f64(1, 2, 3)
    assert torch.allclose(wheel.weights(fitness), wheel.weights(100 * fitness))
    assert float(wheel.weights(fitness)[2]) < float(Softmax(temperature=5).weights(fitness)[2])


@every_wheel
def test_the_same_generator_draws_the_same_mates(wheel: Any) -> None:
    fitness = f64(3, 1, 2, 5)
    assert [wheel(fitness, 2, Seeds(1)(i)) for i in range(20)] == [wheel(fitness, 2, Seeds(1)(i)) for i in range(20)]
    assert len({tuple(wheel(fitness, 2, Seeds(1)(i))) for i in range(20)}) > 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Roulette(floor=0), "floor=0 is not above 0"),
        (lambda: Roulette(floor=-0.1), "floor=-0.1 is not above 0"),
        (lambda: Softmax(temperature=0), "temperature=0 is not above 0"),
        (
            lambda: Roulette(smoothing=-1),
            "smoothing=-1 is below 0.*would favour the worst.*Use 1 for the plain wheel, 0.5 for",
        ),
        (lambda: Rank(smoothing=-0.5), "smoothing=-0.5 is below 0.*would favour the worst"),
        (lambda: Inverse(smoothing=-2), "smoothing=-2 is below 0.*would favour the worst"),
        (lambda: Softmax(smoothing=-2), "smoothing=-2 is below 0.*would favour the worst"),
        (lambda: Roulette(smoothing=nan), "smoothing=nan is not a finite number. It is the exponent"),
        (lambda: Roulette(floor="x"), "floor='x' is not a number"),
        (lambda: Roulette(floor=True), "floor=True is not a number"),
        (lambda: Softmax(temperature=inf), "temperature=inf is not a finite number.*Use 1, or less"),
    ],
)
def test_a_wheel_that_cannot_turn_is_refused(make: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        make()


@pytest.mark.slow
@every_wheel
@given(
    values=st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=8),
    smoothing=st.sampled_from([0.0, 30.0, 300.0, 1e4, 1e300]),
    mates=st.integers(1, 5),
)
@example(values=[0.1, 0.2, 0.3], smoothing=300.0, mates=2)
@example(values=[-1e308, 1e308, 0.0], smoothing=1.0, mates=2)
def test_no_smoothing_and_no_spread_stops_the_wheel(
    wheel: Any, values: list[float], smoothing: float, mates: int
) -> None:
    for dtype in (torch.float32, torch.float64):
        fitness = torch.tensor(values, dtype=dtype)
        chosen = replace(wheel, smoothing=smoothing)(fitness, mates, Seeds(0)())
        finite = int(fitness.isfinite().sum()) or len(values)
        assert len(chosen) == len(set(chosen)) == min(mates, finite)


def test_a_smoothing_that_underflows_still_prefers_the_fitter() -> None:
    fitness = torch.tensor([0.3, 0.1, 0.2])
    assert {tuple(Roulette(smoothing=300)(fitness, 2, Seeds(0)(i))) for i in range(50)} == {(1, 2)}


def test_the_wheel_in_logarithms_draws_as_the_plain_wheel_does() -> None:
    """All four are wanted, and the weight of the fourth underflows to 0: the first one drawn follows the weights."""
    wheel, fitness = Softmax(temperature=1e-3), f64(1.0, 1.0005, 1.001, 4.0)
    plain = wheel.weights(fitness)
    assert plain[3] == 0
    drawn = Counter(wheel(fitness, 4, Seeds(0)(i))[0] for i in range(2000))
    assert [drawn[i] / 2000 for i in range(4)] == pytest.approx((plain / plain.sum()).tolist(), abs=0.04)


def test_raced_mates_are_the_set_with_the_lowest_mean() -> None:
    fitness = f64(*range(8))
    drawn = [Rank()(fitness, 2, generator) for generator in [Seeds(5)()] for _ in range(6)]
    assert Raced(sets=6, mating=Rank())(fitness, 2, Seeds(5)()) == min(drawn, key=sum)
    assert Raced(sets=1)(fitness, 2, Seeds(5)()) == Roulette()(fitness, 2, Seeds(5)())
