"""Signals that wait until something is whole: a Ray that is being started, a generation that is being saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType

DEFERRED = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def deferred_signals(*, second_at_once: bool = True) -> Iterator[Collection[int]]:
    """Answer Ctrl-C at the end of this block, and SIGTERM and SIGHUP where the program answers them itself, as the
    command line does. With `second_at_once`, a second signal does not wait: a disk may never answer.

    Yields the signals that wait; in a thread that Python sends no signals to there are none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    known = [number for name in DEFERRED if (number := getattr(signal, name, None)) is not None]
    answers = {number: answer for number in known if callable(answer := signal.getsignal(number))}
    received = list[int]()

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if second_at_once and len(received) > 1:
            answers[number](number, frame)

    for number in answers:
        signal.signal(number, receive)
    try:
        yield answers.keys()
    finally:
        for number, answer in answers.items():
            signal.signal(number, answer)
        if received:
            signal.raise_signal(received[0])
