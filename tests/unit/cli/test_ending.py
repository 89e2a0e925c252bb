"""How a command ends."""

from __future__ import annotations

import signal

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
