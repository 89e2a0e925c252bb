"""Sides live in processes of their own and wait to be asked: while one is timed, all others are idle.

A child says that it is there once everything is imported, then answers a line with a line of JSON: `open` (start
workers, trace, compile, and a first round) and `round`. It times itself, so pipes cost nothing. Standard library only:
the peers' environment uses this file as well.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
Answer = dict[str, Any]


class SideError(Exception):
    """A side that cannot take part, with the reason."""


class Child:
    """A side, seen from the process that asks."""

    def __init__(self, python: str | Path, module: str, arguments: Sequence[str], *, patience: float) -> None:
        self.patience = patience
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
        self._process = _started([str(python), "-m", module, *arguments], environment)

    def ask(self, request: str) -> Answer:
        """Send a request and wait, without using the processor, for the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SideError("it ended") from None
        return self.answer()

    def answer(self) -> Answer:
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], self.patience)[0]:
            self._process.kill()
            raise SideError(f"no answer in {self.patience:.0f} s")
        line = stdout.readline()
        if not line:
            raise SideError(f"it ended with status {self._process.wait()}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise SideError(answer["error"])
        return answer

    def close(self) -> None:
        """Let it end by itself, which closes its engine; or make it."""
        try:
            self._process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment)


class Side(Protocol):
    """What is timed. `round` does the whole work once and tells how long it took: at least `seconds`."""

    def open(self) -> None: ...

    def round(self) -> Answer: ...


def serve(make_side: Callable[[], Side]) -> None:
    """Be a child: answer requests until there are no more. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: Answer) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        side = make_side()
        say({"here": True})
        for line in sys.stdin:
            if line.strip() == "open":
                begun = perf_counter()
                side.open()
                side.round()
                say({"seconds": perf_counter() - begun})
            else:
                say(side.round())
    except Exception as error:  # noqa: BLE001  whatever it is, the other sides go on without this one
        say({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
