"""What a hyper-parameter is drawn from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf, log, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esgd.errors import RecipeError
from esgd.randomness import Seeds
from esgd.species import Choice, Integers, LogUniform, Sgd, Uniform
from esgd.species.distributions import draw
from tests.small import ask

bounds = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).map(sorted)


@given(bounds, st.integers(0, 10**6))
def test_a_draw_is_inside_its_range(range_: list[float], seed: int) -> None:
    low, high = range_
    assert low <= LogUniform(low, high).draw(Seeds(seed)()) <= high
    assert low <= Uniform(low, high).draw(Seeds(seed)()) <= high


@given(st.integers(-50, 50), st.integers(0, 5), st.integers(0, 10**6))
def test_a_whole_number_is_inside_its_range_and_whole(low: int, width: int, seed: int) -> None:
    drawn = Integers(low, low + width).draw(Seeds(seed)())
    assert low <= drawn <= low + width
    assert type(drawn) is int


def test_both_ends_of_whole_numbers_come_up() -> None:
    """Penn Treebank's patience: [3, 10]."""
    assert {Integers(3, 10).draw(Seeds(0)(i)) for i in range(200)} == set(range(3, 11))


def test_log_uniform_is_uniform_in_the_logarithm() -> None:
    drawn = sorted(log(LogUniform(1e-6, 1e-3).draw(Seeds(0)(i)) / 1e-6) / log(1e3) for i in range(1000))
    assert max(abs(value - i / 1000) for i, value in enumerate(drawn)) < 0.05


def test_a_choice_follows_its_weights() -> None:
    even = Counter(Choice(("a", "b", "c")).draw(Seeds(0)(i)) for i in range(1500))
    assert all(count / 1500 == pytest.approx(1 / 3, abs=0.05) for count in even.values())
    uneven = Counter(Choice(("a", "b", "c"), (3, 1, 0)).draw(Seeds(0)(i)) for i in range(1500))
    assert uneven["a"] / 1500 == pytest.approx(0.75, abs=0.05)
    assert uneven["c"] == 0


def test_a_plain_value_stands_for_itself() -> None:
    for value in (0.3, "fd", True, (0.9, 0.999), None):
        assert draw(value, Seeds(0)()) is value
    assert draw(Choice((5,)), Seeds(0)()) == 5


@dataclass(frozen=True)
class Bell:
    """A distribution of a user's own: no class of ours, only `draw`."""

    mean: float

    def draw(self, generator: torch.Generator) -> float:
        return self.mean + 0.01 * abs(float(torch.randn((), generator=generator)))


def test_a_distribution_of_ones_own_is_drawn_from_wherever_ours_are() -> None:
    assert 1.0 <= draw(Bell(1.0), Seeds(0)()) < 1.1
    pool = Sgd(lr=Bell(0.1), gamma=1.0, momentum=Bell(0.5), momentum_probability=1, hyper={"weight_decay": Bell(0.3)})
    drawn = [pool(ask(1, j)).hyper for j in range(20)]
    for name, mean in (("lr", 0.1), ("momentum", 0.5), ("weight_decay", 0.3)):
        assert len({hyper[name] for hyper in drawn}) == 20
        assert all(mean <= hyper[name] < mean + 0.1 for hyper in drawn)


def test_a_learning_rate_that_ones_own_distribution_cannot_mean_is_refused_when_drawn() -> None:
    with pytest.raises(RecipeError, match=r"lr=-0.9\d+ is below 0. Bell\(mean=-1\) drew it"):
        Sgd(lr=Bell(-1))(ask())


def test_a_class_is_not_drawn_from() -> None:
    assert draw(Uniform, Seeds(0)()) is Uniform


def test_numpy_ends_are_kept_as_pythons_own_numbers() -> None:
    assert type(Uniform(np.float32(0.5), 1).low) is float
    assert type(Integers(np.int64(1), 2).low) is int


def test_a_choice_given_as_lists_is_the_same_value() -> None:
    assert Choice([1, 2], [0.5, 0.5]) == Choice((1, 2), (0.5, 0.5))
    assert hash(Choice([1, 2])) == hash(Choice((1, 2)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Uniform(2, 1), r"low=2 exceeds high=1. A hyper-parameter is drawn from low to high"),
        (lambda: Uniform(0, inf), "high=inf is not a finite number"),
        (lambda: Uniform(nan, 1), "low=nan is not a finite number"),
        (lambda: LogUniform(1, 0.1), "low=1 exceeds high=0.1"),
        (lambda: LogUniform(0, 1), "no logarithm at low=0. A log-uniform range needs 0 < low ≤ high"),
        (lambda: Integers(5, 2), "low=5 exceeds high=2"),
        (lambda: Choice(()), "nothing to choose from.*Give at least one"),
        (lambda: Choice((1, 2), (1,)), r"weights=\[1\] do not fit 2 values"),
        (lambda: Choice((1, 2), (1, -1)), r"weights\[1\]=-1 is below 0.*Give one non-negative weight"),
        (lambda: Choice((1, 2), (0, 0)), r"weights=\[0, 0\] do not fit 2 values.*not all 0"),
        (lambda: Choice((1, 2), (nan, 1)), r"weights\[0\]=nan is not a finite number"),
        (lambda: Choice((1, 2), 0.5), "weights=0.5 is not a list"),
        (lambda: Choice(0.1, (1,)), r"values=0.1 is not a list.*such as \[0.1, 0.5\]"),
        (lambda: Integers(0.5, 3.5), r"low=0.5 is not an int.*Integers\(20, 64\)"),
        (lambda: Uniform("a", "b"), r"low='a' is not a number.*Use for example \(0.1, 0.9\)"),
        (lambda: LogUniform(0.1, None), "high=None is not a number"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(make: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        make()
