"""How a command ends."""

from __future__ import annotations

import errno
import signal
import threading
import weakref

import pytest

from esgd.cli import ending


def test_a_second_interrupt_ends_at_once_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(args: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ending, "app", interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            ending.main()
        assert end.value.code == 130
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def exit_code() -> object:
    """Of the command that stands in for `app`."""
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            ending.main()
    finally:
        signal.signal(signal.SIGINT, before)
    return end.value.code


class Dropped:
    """What a weak reference can point to."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupt_that_arrives_where_python_ignores_it_is_heeded(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted_in_a_callback(args: list[str]) -> None:
        dropped = Dropped()
        reference = weakref.ref(dropped, lambda gone: signal.raise_signal(number))
        del dropped
        assert reference() is None
        threading.Event().wait()  # for ever, unless the interrupt is heeded

    monkeypatch.setattr(ending, "app", interrupted_in_a_callback)
    assert exit_code() == code
    assert "ignored" not in capfd.readouterr().err


def test_a_command_that_is_to_outlive_its_terminal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with nohup."""
    monkeypatch.setattr(ending, "app", lambda args: signal.raise_signal(signal.SIGHUP))
    interrupted, hung_up = signal.getsignal(signal.SIGINT), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ending.main()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, hung_up)
        signal.signal(signal.SIGINT, interrupted)


def test_a_command_whose_terminal_is_gone_ends_without_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def speaks_into_nothing(args: list[str]) -> None:
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(ending, "app", speaks_into_nothing)
    assert exit_code() == 129
