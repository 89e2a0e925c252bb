"""A process that has imported torch and forks for each command that it gets.

    python warm_server.py LISTENER LIFELINE [MODULE …]          modules that it imports as well

A fork does what `python ARGUMENTS` does, without the seconds that importing torch takes. The server imports nothing of
esgd, so a command that forgets to import something of it fails as it would in a process of its own. Workers of pools
have a server of their own, a fork of this one, which imports it.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType
from typing import Any

PRELOADED = (
    *("torch", "torch.func", "cloudpickle", "filelock", "jaxtyping", "platformdirs", "rich.progress", "rich.table"),
    *("safetensors.torch", "scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.stats", "typer"),
    *("matplotlib.style", "matplotlib.figure", "matplotlib.ticker", "sklearn.datasets"),
    "torch._dynamo",  # the first optimizer of a process imports it, and that takes as long as torch itself
)
LARGEST = 1 << 20  # bytes of a request
MOST = 1 << 16  # descriptors
MOST_SENT = 16  # descriptors with a request
PATH = sys.path[1:]  # without the folder of this file


def serve(listener: socket.socket, lifeline: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request, until the tests close the lifeline. Returns in the forks only: what each is to do."""
    while True:
        ready, _, _ = select.select([listener, lifeline], [], [])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended meanwhile
                pass
        if lifeline in ready:
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            message, sent, _, _ = socket.recv_fds(connection, LARGEST, MOST_SENT)
        if not message:  # the one who asked has ended
            continue
        status, *descriptors = sent
        request = json.loads(message)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that it imports
            for name in request["preload"]:
                import_module(name)
        if not os.fork():
            listener.close()
            lifeline.close()
            keep(status)
            return request, descriptors
        for each in (status, *descriptors):
            os.close(each)


def keep(status: int) -> None:
    """Fork once more, and tell the id and the exit code of the fork; returns in the fork."""
    if process := os.fork():
        os.write(status, f"{process}\n".encode())
        os.closerange(0, status)
        os.closerange(status + 1, MOST)
        os.write(status, f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n".encode())
        os._exit(0)
    os.close(status)


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Take over the descriptors, folder, environment and signals that a process of the request would begin with."""
    numbers = [0, 1, 2, *request["pass_fds"]]
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, max(numbers) + 1) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for each, wanted in zip(high, numbers, strict=True):
        os.dup2(each, wanted)
        os.close(each)
    # The streams of the server know whether its files could be sought in.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(number, "w" if number else "r", buffering=1 if name == "stderr" else -1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if request["process_group"]:
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    random.seed()


def python(arguments: list[str]) -> None:
    """What `python ARGUMENTS` does."""
    safe = False
    while arguments[0] in ("-P", "-u"):
        safe |= arguments[0] == "-P"
        if arguments.pop(0) == "-u":
            sys.stdout = TextIOWrapper(open(1, "wb", buffering=0, closefd=False), write_through=True)  # noqa: SIM115
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*(each for each in beside if each), *PATH]
    how, *rest = arguments
    if how == "-m":
        if not safe:
            sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if how == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        code = compile(rest[0], "<string>", "exec")
    else:
        file = main.__file__ = os.path.abspath(how)  # noqa: PTH100
        sys.path.insert(0, os.path.dirname(file))  # noqa: PTH120
        sys.argv[:] = arguments
        with open(file, "rb") as source:  # noqa: PTH123
            code = compile(source.read(), file, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    for name in (*PRELOADED, *sys.argv[3:]):
        import_module(name)
    gc.freeze()  # a fork neither copies nor looks through what is imported
    request, descriptors = serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:3]))
    become(request, descriptors)
    python(request["arguments"])
