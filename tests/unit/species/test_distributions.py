"""What a hyper-parameter is drawn from."""

from __future__ import annotations

from collections import Counter
from math import inf, log, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esgd.errors import RecipeError
from esgd.randomness import Seeds
from esgd.species import Choice, Integers, LogUniform, Uniform
from esgd.species.distributions import draw

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


def test_a_choice_given_as_lists_is_the_same_value() -> None:
    assert Choice([1, 2], [0.5, 0.5]) == Choice((1, 2), (0.5, 0.5))
    assert hash(Choice([1, 2])) == hash(Choice((1, 2)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Uniform(2, 1), r"Uniform\(low=2, high=1\) is not a range: low=2 must not exceed high=1"),
        (lambda: Uniform(0, inf), "high=inf, and both must be finite"),
        (lambda: Uniform(nan, 1), "low=nan"),
        (lambda: LogUniform(1, 0.1), "low=1 must not exceed high=0.1"),
        (lambda: LogUniform(0, 1), "no logarithm at low=0. A log-uniform range needs 0 < low ≤ high"),
        (lambda: Integers(5, 2), "low=5 must not exceed high=2"),
        (lambda: Choice(()), "nothing to choose from.*Give at least one"),
        (lambda: Choice((1, 2), (1,)), r"weights=\[1\] do not fit 2 values"),
        (lambda: Choice((1, 2), (1, -1)), r"weights=\[1, -1\] do not fit 2 values. Give one non-negative weight"),
        (lambda: Choice((1, 2), (0, 0)), r"weights=\[0, 0\] do not fit 2 values.*not all 0"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(make: Any, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        make()
