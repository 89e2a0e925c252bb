"""Callbacks: the four moments of a run, how they stop it, and whose fault an exception is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import esgd
from esgd import StopRun
from esgd.errors import RecipeError
from tests.small import classify

RECIPE = esgd.Recipe(population=3, offspring=3, generations=3, sgd_epochs=1)


def fit(run: Path | None = None, **rest: Any) -> esgd.Result:
    given = {"engine": "loop:threads=1", "progress": False, "report": False, **rest}
    return esgd.fit(classify(), given.pop("recipe", RECIPE), seed=0, run=run, **given)


class Diary:
    """Writes down what it is told, and raises at one moment."""

    def __init__(self, at: str = "", error: Exception | None = None) -> None:
        self.at, self.error, self.told = at, error, list[Any]()

    def _note(self, moment: str, value: object) -> None:
        self.told.append((moment, value))
        if self.error is not None and moment == self.at:
            raise self.error

    def on_run_begin(self, run: Any) -> None:
        self._note("begin", run.manifest["seed"])

    def on_generation_end(self, generation: esgd.Generation) -> None:
        self._note("generation", generation.k)

    def on_run_end(self, result: esgd.Result) -> None:
        self._note("end", result.stopped)

    def on_error(self, error: Exception) -> None:
        self._note("error", type(error).__name__)


def broken(draw: Any) -> esgd.Policy:
    if draw.k == 2:
        raise ZeroDivisionError("no policy today")
    return esgd.Policy(optimizer="sgd", hyper={"lr": 0.1})


BROKEN = esgd.Recipe(population=3, offspring=3, generations=3, sgd_epochs=1, species=broken)


def test_the_moments_of_a_run_come_in_order() -> None:
    diary = Diary()
    fit(callbacks=[diary])
    assert diary.told == [("begin", 0), ("generation", 1), ("generation", 2), ("generation", 3), ("end", "")]


def test_a_resumed_run_begins_and_tells_what_is_new(tmp_path: Path) -> None:
    fit(tmp_path / "run", stop=lambda generation: generation.k == 2)
    diary = Diary()
    fit(tmp_path / "run", callbacks=[diary])
    assert diary.told == [("begin", 0), ("generation", 3), ("end", "")]


def test_a_function_is_called_at_the_end_of_every_generation() -> None:
    seen = list[float]()
    result = fit(callbacks=[lambda generation: seen.append(generation.best.fitness)])
    assert seen == [line["best"] for line in result.history]


def test_what_a_callback_returns_stops_nothing() -> None:
    assert len(fit(callbacks=[lambda generation: generation.k]).history) == 3


def test_a_callback_stops_the_run_by_raising_stop_run(tmp_path: Path) -> None:
    first, second = Diary("generation", StopRun("budget spent")), Diary()
    result = fit(tmp_path / "run", callbacks=[first, second])
    assert (result.stopped, len(result.history)) == ("budget spent", 1)
    assert second.told == [("begin", 0), ("generation", 1), ("end", "budget spent")]
    assert len(fit(tmp_path / "run").history) == 3


def test_stopped_before_the_first_generation_there_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(StopRun, match="not today. No generation is finished"):
        fit(tmp_path / "run", callbacks=[Diary("begin", StopRun("not today"))])
    fit(tmp_path / "run", stop=lambda generation: True)
    result = fit(tmp_path / "run", callbacks=[Diary("begin", StopRun("not today"))])
    assert (result.stopped, len(result.history)) == ("not today", 1)


def test_a_run_that_has_ended_cannot_be_stopped() -> None:
    assert fit(callbacks=[Diary("end", StopRun("too late"))]).stopped == ""


def test_an_error_is_told_and_raised() -> None:
    diary = Diary()
    with pytest.raises(ZeroDivisionError):
        fit(recipe=BROKEN, callbacks=[diary])
    assert diary.told == [("begin", 0), ("generation", 1), ("error", "ZeroDivisionError")]


@pytest.mark.parametrize("folder", [True, False])
def test_after_an_error_a_callback_can_ask_for_the_result_so_far(tmp_path: Path, folder: bool) -> None:
    diary = Diary("error", StopRun("good enough"))
    result = fit(tmp_path / "run" if folder else None, recipe=BROKEN, callbacks=[diary])
    assert (result.stopped, len(result.history)) == ("good enough", 1)
    assert result.fitness == result.history[0]["best"]


@pytest.mark.parametrize("moment", ["begin", "generation", "end"])
def test_an_exception_in_a_callback_is_named_as_the_users(tmp_path: Path, moment: str) -> None:
    diary = Diary(moment, KeyError("slack"))
    with pytest.raises(KeyError) as raised:
        fit(tmp_path / "run", callbacks=[diary])
    assert re.match(rf"Raised by on_\w*{moment}\w* of the callback .*Diary", raised.value.__notes__[0])
    saved = {"begin": 0, "generation": 1, "end": 3}[moment]
    resumed = list[int]()
    fit(tmp_path / "run", callbacks=[lambda generation: resumed.append(generation.k)])
    assert resumed == list(range(saved + 1, 4)), "nothing that was trained is lost"


def test_an_exception_while_an_error_is_handled_does_not_hide_the_error() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        fit(recipe=BROKEN, callbacks=[Diary("error", KeyError("slack"))])
    assert any(
        "While this was handled, KeyError: 'slack'. Raised by on_error" in note for note in raised.value.__notes__
    )


class Misspelt:
    def on_generation_ends(self, generation: object) -> None: ...


@pytest.mark.parametrize(
    ("callbacks", "said"),
    [
        (Diary(), "is not a list. Write callbacks=[…]"),
        ([3], "3 among the callbacks is none"),
        ([Diary], "among the callbacks is none"),
        ([Misspelt()], "'on_generation_ends', which is never called. Did you mean 'on_generation_end'?"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_trained(callbacks: Any, said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        fit(callbacks=callbacks)
    assert said in str(refused.value)


class Watched:
    """The engine Loop, which knows whether its session is open."""

    def __init__(self) -> None:
        self.is_open = False

    @contextmanager
    def open(self, setup: Any, tick: Any) -> Iterator[Any]:
        with esgd.Loop(threads=1).open(setup, tick) as session:
            self.is_open = True
            try:
                yield session
            finally:
                self.is_open = False


def test_the_engine_is_closed_when_a_callback_has_raised() -> None:
    engine = Watched()
    with pytest.raises(ZeroDivisionError) as kept:
        fit(engine=engine, callbacks=[Diary("generation", ZeroDivisionError("mine"))])
    assert kept.value.__traceback__ is not None, "whose frames hold the generator"
    assert not engine.is_open
