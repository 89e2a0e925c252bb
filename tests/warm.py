"""Python processes without the seconds that importing torch takes: forks of a process that has imported it.

They are real processes: they have arguments, a folder, output and an environment of their own, and can be killed. Tests
of how esgd itself starts use `subprocess` instead.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

SERVER = Path(__file__).with_name("warm_server.py")
RAY_WORKER = Path(__file__).with_name("warm_ray_worker.py")
ADDRESS = "ESGD_WARM_SERVER"  # in the environment of processes that are to use the server of one above them
WORKERS = "ESGD_WARM_WORKERS"  # likewise, that of the workers of pools
USED_BY_WORKERS = ("esgd.engines", "esgd.engines.processes.messages", "esgd.operators", "esgd.species", "esgd.tasks")
PATIENCE = 900.0  # seconds


@cache
def address() -> str:
    """Where the server takes requests: one that a process above this has started, or our own."""

    def start(listener: int, lifeline: int) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.Popen(
            [sys.executable, str(SERVER), str(listener), str(lifeline)],
            pass_fds=[listener, lifeline],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**environment, "OMP_NUM_THREADS": "1"},
        )

    return os.environ.get(ADDRESS) or _served_by(start)


@cache
def worker_address() -> str:
    """Where the server of pools' workers takes requests: a fork of the other one that has imported esgd, too."""

    def start(listener: int, lifeline: int) -> Process:
        return Process(
            *(str(SERVER), str(listener), str(lifeline), *USED_BY_WORKERS),
            pass_fds=(listener, lifeline),
            process_group=True,
            env={**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"},
        )

    return os.environ.get(WORKERS) or _served_by(start)


def _served_by(start: Callable[[int, int], Any]) -> str:
    """The address of a server that is started with its listener and its lifeline, and ends with this process."""
    folder = tempfile.mkdtemp(prefix="esgd-warm-")
    near, far = socket.socketpair()
    with far, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{folder}/server")
        listener.listen()
        server = start(listener.fileno(), far.fileno())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.wait)
    atexit.register(near.close)  # before, and then the server ends
    return f"{folder}/server"


def python_path() -> str:
    """What a new process needs to find the same modules as this one."""
    return os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)


def environment() -> dict[str, str]:
    """That of a process which finds our modules and starts warm ones itself, by the servers of this process."""
    return {**os.environ, "PYTHONPATH": python_path(), ADDRESS: address(), WORKERS: worker_address()}


class Process:
    """`subprocess.Popen` of `python ARGUMENTS`. `preload`: what the server imports before, and then keeps."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        streams: Sequence[int] = (0, 1, 2),
        pass_fds: Sequence[int] = (),
        process_group: bool = False,
        preload: Sequence[str] = (),
        server: str | None = None,
    ) -> None:
        request = {
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "pass_fds": pass_fds,
            "process_group": process_group,
            "preload": preload,
        }
        reading, writing = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            try:
                connection.connect(server or address())
                socket.send_fds(connection, [json.dumps(request).encode()], [writing, *streams, *pass_fds])
            finally:
                os.close(writing)
        self._status: IO[str] = os.fdopen(reading)
        self.pid, self.returncode = int(self._status.readline()), None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout or 0.0)
            with self._status:
                self.returncode = int(self._status.readline())
        return self.returncode

    def has_ended(self) -> bool:
        return self.returncode is not None or bool(select.select([self._status], [], [], 0)[0])

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)


class Piped(Process):
    """`subprocess.Popen` with pipes to standard input and output; what it writes to standard error lies in a file."""

    def __init__(self, *arguments: str, **rest: Any) -> None:
        read, write = os.pipe()
        answers, answering = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # until `communicate`
        try:
            super().__init__(*arguments, streams=(read, answering, self._said.fileno()), **rest)
        finally:
            os.close(read)
            os.close(answering)
        self.stdin, self.stdout = os.fdopen(write, "wb"), os.fdopen(answers, "rb")

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has written to standard output and error, when it has ended."""
        with self.stdin, self.stdout, self._said:
            self.stdin.close()
            self.wait(timeout)
            self._said.seek(0)
            return self.stdout.read().decode(), self._said.read().decode()


def python(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    together: bool = False,
    preload: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS`, when it has ended. `together`: what it writes to standard error is in its standard output."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, Path(os.devnull).open() as nothing:
        streams = (nothing.fileno(), out.fileno(), (out if together else err).fileno())
        process = Process(*map(str, arguments), cwd=cwd, env=env, streams=streams, preload=preload)
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, process.wait(), out.read().decode(), err.read().decode())


def worker(channel: int, lifeline: int) -> Process:
    """A worker of a `Pool`, in place of the one that the pool would start."""
    return Process(
        *("-P", "-m", "esgd.engines.processes.worker", str(channel), str(lifeline)),
        pass_fds=(channel, lifeline),
        process_group=True,
        env={**os.environ, "PYTHONPATH": python_path()},
        server=worker_address(),
    )


@contextmanager
def ray_workers() -> Iterator[None]:
    """The workers of a Ray that is started meanwhile are forks of the server, too."""
    from ray._private import ray_constants

    theirs = ray_constants.SETUP_WORKER_FILENAME
    ray_constants.SETUP_WORKER_FILENAME, os.environ[ADDRESS] = str(RAY_WORKER), address()
    try:
        yield
    finally:
        ray_constants.SETUP_WORKER_FILENAME = theirs
        del os.environ[ADDRESS]
