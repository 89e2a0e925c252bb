"""How a command ends.

Exit codes: 0 success; 2 the input is wrong, or the machine has too little of something, and the message says what to
do; 3 a run folder cannot be read, written or continued; 130 interrupted, 143 terminated, 129 its terminal closed, and
the message says how to continue; 1 a defect of esgd.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from esgd._limits import shortage
from esgd.cli.app import app
from esgd.errors import EsgdError, RunError

TERMINATING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""SIGHUP comes when the terminal is closed; Windows has none."""

AGAIN = 0.01
"""Seconds after which an interrupt that was ignored is sent again: Python has forgotten the first one by then."""


def main() -> None:
    """Run the command line; errors are shown without a traceback unless --debug is given."""
    debug = "--debug" in sys.argv
    atexit.register(_end_at_once_when_interrupted)
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # μ on a terminal without it is not worth a crash
        with _terminable(), _never_ignored():
            app(args=[argument for argument in sys.argv[1:] if argument != "--debug"])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has closed it
    except KeyboardInterrupt:
        _end_at_once_when_interrupted()
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        _say_error(error)
        sys.exit(3 if isinstance(error, RunError) else 2 if isinstance(error, EsgdError) or shortage(error) else 1)


def _end_at_once_when_interrupted() -> None:
    """From now on another Ctrl-C ends the process at once, without a traceback of what Python still tidies up."""
    with suppress(OSError, ValueError):  # the reader has gone, or the stream is closed
        sys.stdout.flush()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _terminable() -> Iterator[None]:
    """Answer SIGTERM and SIGHUP as Ctrl-C: what is open is closed, workers end, and the run says how to continue.

    The exit code is told here, because typer makes 130 of every interrupt. With its terminal a command may have lost
    what it writes to. A signal that is ignored stays so: nohup does that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = list[int]()

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    heeded = [number for number in TERMINATING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    except (KeyboardInterrupt, SystemExit, OSError):
        if received:
            sys.exit(128 + received[0])
        raise
    finally:
        for number, answer in before.items():
            signal.signal(number, answer)


@contextmanager
def _never_ignored() -> Iterator[None]:
    """Send an interrupt again that Python could not raise where it arrived, as in the callback of a weak reference.

    Python prints and forgets such an exception. Here it is raised a moment later, when that callback has returned.
    """
    before = sys.unraisablehook

    def again(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            threading.Timer(AGAIN, _interrupt).start()
        else:
            before(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt() -> None:
    """Interrupt the main thread, also where it waits."""
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _say_error(error: Exception) -> None:
    """Print the message of an error of ours; of any other, most often in a user's task, also its type and place."""
    text = shortage(error) or str(error)
    if not isinstance(error, EsgdError) and not shortage(error):
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno}). --debug shows the traceback."
    text = "\n".join([f"error: {text}", *getattr(error, "__notes__", ())])
    try:
        from rich.console import Console

        Console(stderr=True).print(text, style="red", highlight=False, soft_wrap=True, markup=False)
    except (MemoryError, RuntimeError, OSError):  # for colours, too, there must be some memory
        sys.stderr.write(f"{text}\n")
