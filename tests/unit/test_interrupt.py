"""Ctrl-C inside Python: the result so far, and a folder that continues with the bits of a run without it."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import esgd
from esgd.progress.text import Silent
from tests.small import classify

RECIPE = esgd.Recipe(population=3, offspring=3, generations=3, sgd_epochs=1)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """SIGINT is Ctrl-C, whatever the process that runs the tests made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def fit(run: Path | None = None, **rest: Any) -> esgd.Result:
    given = {"engine": "loop:threads=1", "progress": False, "report": False, **rest}
    return esgd.fit(classify(), RECIPE, seed=0, run=run, **given)


class CtrlC:
    """A reader who interrupts in one phase of a generation."""

    def __init__(self, k: int, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.k, self.phase, self.begun = k, phase, 1
        monkeypatch.setattr(Silent, "tick", lambda _, phase, done, total: self.tick(phase, total))
        monkeypatch.setattr(Silent, "generation", lambda _, generation: self.next())

    def tick(self, phase: str, total: int) -> None:
        if (self.begun, phase) == (self.k, self.phase) and total > 1:
            signal.raise_signal(signal.SIGINT)

    def next(self) -> None:
        self.begun += 1
        if (self.begun, self.phase) == (self.k, "between"):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("phase", ["sgd", "evolution", "between"])
@pytest.mark.parametrize("folder", [True, False], ids=["folder", "no folder"])
def test_ctrl_c_returns_the_result_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, folder: bool
) -> None:
    CtrlC(3, phase, monkeypatch)
    result = fit(tmp_path / "run" if folder else None)
    monkeypatch.undo()
    expected = fit(stop=lambda generation: generation.k == 2)
    assert (result.stopped, len(result.history)) == ("interrupted", 2)
    assert result.fitness == expected.fitness
    assert torch.equal(result.state.archive.rows, expected.state.archive.rows)
    if folder or phase == "sgd":
        assert torch.equal(result.population.rows, expected.population.rows)
    else:
        assert len(result.population) in (1, 3), "without a folder, the fittest network is kept for certain"


def test_an_interrupted_run_continues_with_the_bits_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CtrlC(2, "evolution", monkeypatch)
    assert len(fit(tmp_path / "run").history) == 1
    monkeypatch.undo()
    whole, resumed = fit(), fit(tmp_path / "run")
    assert torch.equal(whole.population.rows, resumed.population.rows)
    assert [line["fitness"] for line in whole.history] == [line["fitness"] for line in resumed.history]
    assert resumed.stopped == ""


def test_in_the_first_generation_there_is_no_result_to_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CtrlC(1, "sgd", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run")


def test_a_loop_of_runs_asks_for_the_interrupt_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CtrlC(2, "sgd", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", on_interrupt="raise")
    monkeypatch.undo()
    assert len(fit(tmp_path / "run").history) == 3


def test_the_moments_after_an_interrupt_are_those_of_a_run_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    CtrlC(2, "sgd", monkeypatch)
    told = list[Any]()

    class Diary:
        def on_run_end(self, result: esgd.Result) -> None:
            told.append(result.stopped)

        def on_error(self, error: Exception) -> None:
            told.append(error)

    fit(callbacks=[Diary()])
    assert told == ["interrupted"]


@pytest.mark.usefixtures("warm_workers")
def test_an_interrupt_from_another_thread_reaches_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a notebook's stop button does: the main thread is interrupted, and the workers end."""
    CtrlC(2, "sgd", monkeypatch)
    monkeypatch.setattr(signal, "raise_signal", lambda number: _thread.interrupt_main(number))
    before = threading.active_count()
    result = fit(tmp_path / "run", engine="pool:workers=1")
    assert (result.stopped, len(result.history)) == ("interrupted", 1)
    assert threading.active_count() == before
