"""`esgd` in a process of its own that can be killed, interrupted and kept short of things.

A process that imports torch takes seconds to begin. These are forked from one that has done so; nothing has been
trained or computed in it, so a fork is as good as a new process. The undisturbed runs that everything is compared with
are made by new processes, so every comparison checks that, too.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import esgd.report as report
from esgd.cli import main

Act = Callable[[], object]


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and all that it said."""

    code: int
    said: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"`{' '.join(self.words)}` ended with {self.code}: {self.said.strip()[-1500:] or '(nothing said)'}"


@dataclass
class Process:
    """A victim at work."""

    pid: int
    words: tuple[str, ...]
    output: Path
    begun: float = field(default_factory=monotonic)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a process that has ended and was not waited for yet takes no notice."""
        os.kill(self.pid, number)

    def wait(self) -> Ended:
        _, status = os.waitpid(self.pid, 0)
        return Ended(os.waitstatus_to_exitcode(status), self.output.read_text(errors="replace"), self.words)

    @property
    def stopped(self) -> bool:
        """Whether it was stopped, and may go on."""
        return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    @property
    def ended(self) -> bool:
        """Whether it has ended; it can be waited for still."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def start(*words: str | Path, cwd: Path, prepare: Act = lambda: None) -> Process:
    """Begin `esgd WORDS` in a folder; `prepare` is called in the new process first."""
    spelt = tuple(map(str, words))

    def act() -> None:
        os.chdir(cwd)
        sys.argv = ["esgd", *spelt]
        prepare()
        main()

    return fork(act, ("esgd", *spelt), cwd)


def esgd(*words: str | Path, cwd: Path, prepare: Act = lambda: None) -> Ended:
    """`esgd WORDS` in a folder, to its end."""
    return start(*words, cwd=cwd, prepare=prepare).wait()


def without_report() -> None:
    """Let this process draw no report: that takes longer than all else, where reports are not what is attacked."""
    report.write_run = lambda folder: folder


def fork(act: Act, words: tuple[str, ...], home: Path) -> Process:
    """Begin a process that does one thing; what it says is kept in `home`."""
    output = home / f"said-{len(list(home.glob('said-*')))}"
    output.touch()
    pid = os.fork()
    if pid == 0:
        _become(act, output)
    return Process(pid, words, output)


def _become(act: Act, output: Path) -> None:
    """What the new process does, as the interpreter would begin and end it; it never returns."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["COLUMNS"] = "400"
        _speak_into(output)
        act()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        for last in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore[attr-defined]
            with _whatever():
                last()
        os._exit(code)


def _speak_into(output: Path) -> None:
    null, said = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_APPEND)
    for source, target in ((null, 0), (said, 1), (said, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(said)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # a descriptor
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115


@contextmanager
def _whatever() -> Iterator[None]:
    try:
        yield
    except BaseException:  # noqa: BLE001  # the process ends anyway
        traceback.print_exc()


def wait_until(true: Callable[[], bool], *, seconds: float) -> bool:
    """Whether it became true in time."""
    end = monotonic() + seconds
    while not true():
        if monotonic() > end:
            return False
        sleep(0.005)
    return True
