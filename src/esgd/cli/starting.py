"""The first seconds of a command, in which it imports what it needs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def importing() -> Iterator[None]:
    """Imports that take long, PyTorch above all. Meanwhile Ctrl-C and SIGTERM end the process at once, in silence.

    Nothing has begun that could be lost. A package that is interrupted in its import may print a traceback, or take the
    interrupt for another error.
    """
    before = dict[int, signal.Handlers | object]()
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
