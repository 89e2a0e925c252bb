"""Signals that wait until a generation is saved."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import esgd
from esgd._signals import deferred_signals
from esgd.run import folder
from tests.command import esgd as command
from tests.small import classify


def raised(times: int) -> list[str]:
    """What happens in a block in which so many signals come."""
    happened = list[str]()
    try:
        with deferred_signals():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            happened.append("the end of the block")
    except KeyboardInterrupt:
        happened.append("an interrupt")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return happened


def test_a_signal_is_answered_at_the_end_of_the_block() -> None:
    assert raised(0) == ["the end of the block"]
    assert raised(1) == ["the end of the block", "an interrupt"]


def test_a_second_one_is_answered_at_once() -> None:
    assert raised(2) == ["an interrupt"]


def test_signals_that_the_program_does_not_answer_stay_as_they_are() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # another test's library may answer it
    try:
        with deferred_signals() as waiting:
            assert signal.SIGINT in waiting
            assert signal.SIGTERM not in waiting
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_defers_nothing() -> None:
    found = list[Any]()

    def inside() -> None:
        with deferred_signals() as waiting:
            found.append(waiting)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [()]


def test_an_interrupt_while_a_generation_is_saved_leaves_a_run_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(path: Path, line: Any, append: Any = folder.append_line) -> None:
        if line["k"] == 2:
            signal.raise_signal(signal.SIGINT)
        append(path, line)

    monkeypatch.setattr(folder, "append_line", interrupted)
    recipe = esgd.Recipe(population=2, offspring=2, generations=4, sgd_epochs=1)
    result = esgd.fit(classify(), recipe, seed=0, run=tmp_path / "r", engine="loop", progress="plain", report=False)
    assert "2 generations are saved" in "".join(capsys.readouterr())
    assert result.stopped == "interrupted"
    assert [line["k"] for line in result.history] == [1, 2]
    assert command("verify", "r", cwd=tmp_path).returncode == 0
