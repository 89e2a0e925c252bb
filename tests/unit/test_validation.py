"""One way to refuse a number."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from esgd._validation import check_list, check_number, check_range
from esgd.errors import RecipeError

WHY = "It is so. Do this."


@pytest.mark.parametrize(
    ("value", "bounds", "fault"),
    [
        ("x", {}, "is not a number"),
        (None, {}, "is not a number"),
        (True, {}, "is not a number"),
        (np.bool_(True), {}, "is not a number"),
        (1j, {}, "is not a number"),
        ([1], {}, "is not a number"),
        (torch.tensor(1.0), {}, "is not a number"),
        (nan, {}, "is not a finite number"),
        (-inf, {}, "is not a finite number"),
        (inf, {"at_least": 0}, "is not a finite number"),
        (np.float32("nan"), {"above": 0}, "is not a finite number"),
        (0, {"above": 0}, "is not above 0"),
        (-1, {"at_least": 0}, "is below 0"),
        (3, {"at_most": 2}, "exceeds 2"),
        (0, {"above": 0, "at_most": 1}, "is not in (0, 1]"),
        (inf, {"at_least": 0, "at_most": 1}, "is not in [0, 1]"),
        (nan, {"at_least": 0, "at_most": 1}, "is not in [0, 1]"),
        (1.5, {"whole": True}, "is not an int"),
        (2.0, {"whole": True}, "is not an int"),
        (1, {"whole": True, "at_least": 2}, "is below 2"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_the_value_and_then_why_and_what_to_do(
    value: Any, bounds: dict[str, Any], fault: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        check_number("size", value, meaning=WHY, **bounds)
    assert str(caught.value) == f"size={value!r} {fault}. {WHY}"


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_a_finite_number_without_bounds_is_itself(value: float) -> None:
    kept = check_number("size", value, meaning=WHY)
    assert kept == value
    assert type(kept) is type(value)


@pytest.mark.parametrize(
    ("value", "kind"), [(np.float32(0.5), float), (np.float64(0.5), float), (np.int64(1), int), (Fraction(1, 2), float)]
)
def test_numbers_of_other_libraries_become_pythons_own(value: Any, kind: type) -> None:
    kept = check_number("size", value, at_least=0, at_most=1, meaning=WHY)
    assert type(kept) is kind
    assert kept == value


def test_both_ends_of_a_range_belong_to_it_and_the_field_is_named() -> None:
    assert check_range(1, 1, meaning=WHY) == (1, 1)
    with pytest.raises(RecipeError, match=r"high='x' is not a number. sigma=\(0, 'x'\): It is so. Do this."):
        check_range(0, "x", name="sigma", meaning=WHY)


def test_a_text_is_no_list() -> None:
    assert check_list("after", [1, 2], meaning=WHY) == (1, 2)
    with pytest.raises(RecipeError, match="after='12' is not a list. It is so. Do this."):
        check_list("after", "12", meaning=WHY)
