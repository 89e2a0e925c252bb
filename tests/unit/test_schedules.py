"""Learning schedules: the factor on a learning rate as training goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import cos, inf, nan, pi
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import esgd
from esgd.errors import RecipeError
from esgd.schedules import Constant, Cosine, CosineRun, Linear, Moment, Steps, Swa, Tail
from esgd.species import Optimizer
from tests.small import RECORDING_SGD, RecordingSgd, classify

INSIDE = [Constant(), Cosine(floor=0.2), Linear(floor=0.2), Tail(floor=0.2)]


def course(schedule: Any, epochs: int, *, before: int = 0, total: int = 1) -> list[float]:
    """The factor at the beginning of each epoch and in the middle of the last."""
    points = [*range(epochs), epochs - 0.5]
    return [schedule(Moment(epoch=epoch, epochs=epochs, before=before, total=total)) for epoch in points]


def test_constant_is_one() -> None:
    assert course(Constant(), 4) == [1, 1, 1, 1, 1]


def test_cosine_is_half_a_cosine_from_one_to_the_floor_inside_a_generation() -> None:
    assert course(Cosine(floor=0), 4) == pytest.approx([(1 + cos(pi * t / 4)) / 2 for t in (0, 1, 2, 3, 3.5)])
    assert course(Cosine(floor=0.2), 2)[:2] == pytest.approx([1, 0.6])


def test_linear_is_a_straight_line() -> None:
    assert course(Linear(floor=0.2), 4) == pytest.approx([1, 0.8, 0.6, 0.4, 0.3])


def test_tail_anneals_the_last_epoch_only() -> None:
    assert course(Tail(floor=0.2), 3) == pytest.approx([1, 1, 1, 0.6])


@pytest.mark.parametrize("schedule", INSIDE, ids=str)
def test_inside_a_generation_it_does_not_matter_which_one(schedule: Any) -> None:
    assert course(schedule, 3, before=0, total=30) == course(schedule, 3, before=12, total=30)


def test_cosine_over_the_run_goes_on_where_the_last_generation_stopped() -> None:
    whole = [CosineRun()(Moment(epoch=e, epochs=12, before=0, total=12)) for e in range(12)]
    pieces = [CosineRun()(Moment(epoch=e, epochs=4, before=b, total=12)) for b in (0, 4, 8) for e in range(4)]
    assert pieces == whole
    assert whole == pytest.approx([(1 + cos(pi * t / 12)) / 2 for t in range(12)])
    assert CosineRun(floor=0.1)(Moment(epoch=5, epochs=9, before=10, total=12)) == pytest.approx(0.1), "never beyond"


def test_steps_fall_after_the_named_global_epochs() -> None:
    steps = Steps(after=(80, 121))
    at = {epoch: steps(Moment(epoch=epoch % 20, epochs=20, before=epoch - epoch % 20)) for epoch in range(160)}
    assert {at[epoch] for epoch in range(80)} == {1.0}
    assert [at[epoch] for epoch in (80, 120)] == pytest.approx([0.1, 0.1])
    assert [at[epoch] for epoch in (121, 159)] == pytest.approx([0.01, 0.01])
    assert Steps(after=(1, 2), factor=0.5)(Moment(epoch=2.5, epochs=3)) == 0.25


def test_a_drop_comes_with_the_first_step_of_its_epoch() -> None:
    steps = Steps(after=(1,))
    assert steps(Moment(epoch=0.999, epochs=3)) == 1
    assert steps(Moment(epoch=1.0, epochs=3)) == pytest.approx(0.1)


def test_steps_given_as_a_list_are_the_same_value() -> None:
    assert Steps(after=[80, 121]) == Steps(after=(80, 121))


@given(
    st.sampled_from([Constant(), Cosine(), Linear(), Tail(), CosineRun(), Steps(after=(2, 5))]),
    st.integers(1, 20),
    st.integers(0, 100),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1),
)
def test_a_schedule_never_rises_and_stays_between_nothing_and_one(
    schedule: Any, epochs: int, before: int, late: float, early: float
) -> None:
    moments = [
        Moment(epoch=share * epochs, epochs=epochs, before=before, total=before + epochs)
        for share in (late * early, late)
    ]
    earlier, later = (schedule(moment) for moment in moments)
    assert 1 >= earlier >= later - 1e-12
    assert later >= 0


@pytest.mark.parametrize("schedule", [Cosine, Linear, Tail, CosineRun])
@pytest.mark.parametrize("floor", [-0.1, 1.5, nan, inf, "x", None, True])
def test_a_floor_that_is_no_fraction_is_refused(schedule: Any, floor: Any) -> None:
    with pytest.raises(
        RecipeError, match="is not (in|a number).*a fraction, 0 ≤ floor ≤ 1. Use floor=0.01 for 1%"
    ) as caught:
        schedule(floor=floor)
    assert f"floor={floor!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"after": 80}, "after=80 is not a list. They are the global epochs"),
        ({"after": (80, "x")}, r"after\[1\]='x' is not a number.*Use after=\(80, 121\)"),
        ({"after": (-1,)}, r"after\[0\]=-1 is below 0"),
        ({"after": (80,), "factor": nan}, "factor=nan is not a finite number.*Use factor=0.1"),
    ],
)
def test_steps_that_are_none_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Steps(**given)


def a_third(moment: Moment) -> float:
    return 1 / 3


def test_any_function_of_a_moment_is_a_schedule() -> None:
    RecordingSgd.steps.clear()
    species = Optimizer(name=RECORDING_SGD, lr=0.3, gamma=1.0, schedule=a_third)
    list(esgd.evolve(classify(), esgd.Recipe(population=2, generations=2, sgd_epochs=1, species=species), seed=0))
    assert {step["lr"] for step in RecordingSgd.steps} == {0.3 / 3}


def test_a_function_without_a_name_cannot_be_written_down_and_is_refused_before_anything_is_trained() -> None:
    RecordingSgd.steps.clear()
    species = Optimizer(name=RECORDING_SGD, lr=0.1, schedule=lambda moment: 0.5)
    with pytest.raises(RecipeError, match="<lambda> has no importable name.*top level of a module"):
        next(esgd.evolve(classify(), esgd.Recipe(population=2, species=species), seed=0))
    assert RecordingSgd.steps == []


WARMED = [Cosine, Linear, Tail, CosineRun, Swa]


def at(schedule: Any, share: float) -> float:
    """The factor after a share of a run that is one generation."""
    return schedule(Moment(epoch=20 * share, epochs=20, before=0, total=20))


@pytest.mark.parametrize("schedule", [*WARMED, partial(Steps, after=(15,))], ids=str)
def test_a_warm_up_rises_in_a_straight_line_from_near_nothing(schedule: Any) -> None:
    warm = schedule(warmup=0.25)
    assert [at(warm, share) for share in (0, 0.05, 0.1, 0.2)] == pytest.approx([0.01, 0.208, 0.406, 0.802])
    assert at(warm, 0.25) == pytest.approx(1)
    assert at(warm, 0.99) == pytest.approx(at(schedule(), 0.99), abs=0.01), "it ends where it would without"


def test_what_falls_all_the_time_falls_in_the_time_that_is_left() -> None:
    assert at(Cosine(floor=0, warmup=0.2), 0.6) == pytest.approx(0.5)
    assert at(CosineRun(warmup=0.2), 0.6) == pytest.approx(0.5)
    assert at(Linear(floor=0.2, warmup=0.2), 0.6) == pytest.approx(0.6)
    assert at(Linear(floor=1, warmup=0.2), 0.6) == 1, "constant after a warm-up"
    assert at(Cosine(floor=0.1, warmup=1), 0.5) == pytest.approx(0.505), "nothing but a warm-up"


def test_marks_of_its_own_stay_where_they_are() -> None:
    assert course(Tail(floor=0.2, warmup=0.1), 3)[1:] == course(Tail(floor=0.2), 3)[1:]
    assert at(Steps(after=(15,), warmup=0.2), 0.75) == pytest.approx(0.1)
    assert at(Swa(warmup=0.2), 0.6) == at(Swa(), 0.6)


def test_a_schedule_of_a_generation_warms_up_in_each_and_one_of_the_run_once() -> None:
    later = Moment(epoch=0, epochs=4, before=8, total=12)
    assert Cosine(warmup=0.1)(later) == pytest.approx(0.01)
    assert CosineRun(warmup=0.1)(later) == pytest.approx((1 + cos(pi * 17 / 27)) / 2)


@given(
    st.sampled_from([*WARMED, partial(Steps, after=(2, 5))]),
    st.integers(1, 9),
    st.integers(0, 9),
    st.floats(0, 1, exclude_max=True),
)
def test_no_warm_up_is_the_schedule_bit_by_bit(schedule: Any, epochs: int, before: int, share: float) -> None:
    moment = Moment(epoch=share * epochs, epochs=epochs, before=before, total=before + epochs)
    assert schedule(warmup=0)(moment) == schedule()(moment) == BEFORE[schedule_name(schedule)](moment)


def schedule_name(schedule: Any) -> str:
    return str(getattr(schedule, "func", schedule).__name__)


BEFORE: dict[str, Callable[[Moment], float]] = {  # as they were written before there was a warm-up
    "Cosine": lambda m: 0.01 + (1.0 - 0.01) * 0.5 * (1.0 + cos(pi * (m.epoch / m.epochs))),
    "Linear": lambda m: 1.0 - (1.0 - 0.01) * m.epoch / m.epochs,
    "Tail": lambda m: 0.01 + (1.0 - 0.01) * 0.5 * (1.0 + cos(pi * max(0.0, m.epoch - (m.epochs - 1)))),
    "CosineRun": lambda m: 0.0 + 1.0 * 0.5 * (1.0 + cos(pi * min(1.0, (m.before + m.epoch) / m.total))),
    "Swa": lambda m: 1.0 - (1.0 - 0.05) * min(1.0, max(0.0, ((m.before + m.epoch) / m.total / 0.75 - 0.5) / 0.4)),
    "Steps": lambda m: float(0.1 ** sum(m.before + m.epoch >= epoch for epoch in (2, 5))),
}


@pytest.mark.parametrize("warmup", [-0.1, 1.5, nan, "x", True])
@pytest.mark.parametrize("schedule", [*WARMED, partial(Steps, after=(15,))], ids=str)
def test_a_warm_up_that_is_no_share_is_refused(schedule: Any, warmup: Any) -> None:
    with pytest.raises(RecipeError, match="warmup=.*is not (in|a number).*Use warmup=0.1 for a tenth, 0 for none"):
        schedule(warmup=warmup)
