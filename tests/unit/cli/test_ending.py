"""How a command ends."""

from __future__ import annotations

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


class Dropped:
    """What a weak reference can point to."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
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
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as end:
            ending.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert end.value.code == code
    assert "ignored" not in capfd.readouterr().err
