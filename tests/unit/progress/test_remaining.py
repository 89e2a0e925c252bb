"""Time left: nothing is said before anything is known, a lower bound before a generation is whole, then the truth."""

from typing import Any

import pytest

import esgd
from esgd._text.wording import duration
from esgd.progress.remaining import Remaining
from esgd.sizes import Each


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stages(generations: int = 3, **changes: Any) -> list[Any]:
    return list(esgd.Recipe(generations=generations, sgd_epochs=2, **changes).stages())


def go_through(remaining: Remaining, clock: Clock, *, sgd: float, evolution: float) -> None:
    """One generation of sixteen individuals that takes so many seconds."""
    for done in range(1, 17):
        clock.now += sgd / 16
        remaining.tick("sgd", done, 16)
    for done in range(1, 65):
        clock.now += evolution / 64
        remaining.tick("evolution", done, 64)
    remaining.generation()


def test_nothing_is_said_while_nothing_is_known() -> None:
    clock = Clock()
    remaining = Remaining(stages(), now=clock)
    clock.now += 50
    assert remaining.estimate is None


def test_the_first_generation_gives_a_lower_bound() -> None:
    clock = Clock()
    remaining = Remaining(stages(), now=clock)
    clock.now += 4.0
    remaining.tick("sgd", 4, 16)
    assert remaining.estimate is not None
    assert remaining.estimate.seconds == pytest.approx(12 + 2 * 16), "what evolution takes nobody knows yet"
    assert str(remaining.estimate) == "over 44 s left"


def test_without_evolution_the_first_generation_tells_all() -> None:
    clock = Clock()
    remaining = Remaining(stages(evolution_steps=0), now=clock)
    clock.now += 4.0
    remaining.tick("sgd", 4, 16)
    assert str(remaining.estimate) == "about 44 s left"


def test_after_a_generation_the_estimate_is_exact_if_the_rest_is_alike() -> None:
    clock = Clock()
    remaining = Remaining(stages(), now=clock)
    go_through(remaining, clock, sgd=16.0, evolution=4.0)
    end = clock.now + 2 * 20.0
    for phase, total, seconds in (("sgd", 16, 16.0), ("evolution", 64, 4.0)):
        for done in range(1, total + 1):
            clock.now += seconds / total
            remaining.tick(phase, done, total)
            assert remaining.estimate is not None
            assert remaining.estimate.seconds == pytest.approx(end - clock.now)
            assert remaining.estimate.whole


def test_a_longer_last_stage_is_reckoned_by_its_epochs() -> None:
    clock = Clock()
    tuning = esgd.FineTuning(lr=0.001, epochs=10)
    remaining = Remaining(stages(1, fine_tuning=tuning), now=clock)
    go_through(remaining, clock, sgd=16.0, evolution=4.0)
    assert remaining.estimate is not None
    assert remaining.estimate.seconds == pytest.approx(10 * 8.0), "five times the epochs, and nobody is bred"


def test_a_resumed_run_knows_from_its_history() -> None:
    clock = Clock()
    seconds = {"sgd": 10.0, "fitness": 4.0, "evolution": 1.0, "checkpoint": 1.0, "other": 0.0}
    line = {"seconds": seconds, "ledger": {"fitness_sgd": 100, "fitness_evolution": 300}}
    remaining = Remaining(stages(), [line], now=clock)
    assert remaining.estimate is not None
    assert remaining.estimate.seconds == pytest.approx(2 * 16.0)


def test_a_phase_that_lasts_longer_than_expected_does_not_end_below_zero() -> None:
    clock = Clock()
    remaining = Remaining(stages(2), now=clock)
    go_through(remaining, clock, sgd=16.0, evolution=4.0)
    clock.now += 100.0
    assert remaining.estimate is not None
    assert remaining.estimate.seconds == pytest.approx(4.0)
    remaining.tick("sgd", 8, 16)
    assert remaining.estimate.seconds > 50.0, "half of it took a hundred seconds"


def test_when_all_is_done_nothing_is_left() -> None:
    clock = Clock()
    remaining = Remaining(stages(1), now=clock)
    go_through(remaining, clock, sgd=1.0, evolution=1.0)
    assert remaining.estimate is None


def test_durations_read_well() -> None:
    assert [duration(s) for s in (0.0, 0.5, 59.4, 59.6, 3599, 3600, 90000)] == [
        "0 s",
        "0.5 s",
        "59 s",
        "1 min",
        "1 h 00 min",
        "1 h 00 min",
        "1 day 1 h",
    ]


def test_time_left_follows_the_epochs_of_all_individuals() -> None:
    """Nine individuals with a quarter of an epoch each, then three with a half, then two with three each."""
    clock = Clock()
    sizes = {"population": Each((9, 3, 2)), "sgd_epochs": Each((0.25, 0.5, 3.0)), "offspring": 0, "mates": 1}
    remaining = Remaining(list(esgd.Recipe(generations=3, **sizes).stages()), now=clock)
    clock.now += 4.5
    remaining.tick("sgd", 9, 9)
    remaining.generation()
    assert remaining.estimate is not None
    assert remaining.estimate.seconds == pytest.approx(2.0 * (3 * 0.5 + 2 * 3.0)), "two seconds an epoch"
