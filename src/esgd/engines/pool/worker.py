"""A worker process of a `Pool`: python -m esgd.engines.pool.worker SOCKET LIFELINE

It imports nothing of the user's main script, so a script needs no main guard. It ends when the pool does, however that
ends: the lifeline is a pipe whose other end only the pool holds.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import sys
import threading
import traceback
from typing import Any

import cloudpickle
import torch

from esgd.engines.pool.memory import Mappings
from esgd.engines.pool.wire import Line, pickled, unpack

LOOKS_EVERY = 1.0  # seconds

Reply = tuple[str, Any]
"""("done", result), or ("failed", (exception or None, traceback)): what comes back from a worker."""


def main() -> None:
    line, lifeline = Line(socket.socket(fileno=int(sys.argv[1]))), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(lifeline, os.getppid()), daemon=True).start()
    mappings, bench = Mappings(), None
    while True:
        try:
            message, descriptors = line.receive()
        except (EOFError, OSError):
            return
        numbers, dropped, content, buffers = pickle.loads(message)
        for number, descriptor in zip(numbers, descriptors, strict=True):
            mappings.add(number, descriptor)
        mappings.drop(dropped)
        reply: Reply
        try:
            value = unpack(content, mappings, buffers)
            if bench is None:
                engine, rules = value
                torch.set_num_threads(engine.threads or 1)
                bench = engine.bench(rules)
                reply = ("done", None)
            else:
                reply = ("done", value.run(bench))
            del value
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the pool's to raise
            reply = ("failed", (_portable(error), traceback.format_exc()))
        line.send(pickled(reply))
        del reply


def _end_with(lifeline: int, parent: int) -> None:
    """End at once when the pool is gone, in the middle of a job too.

    The pipe tells at once; but a process that the pool's has forked holds its other end as well, so now and then the
    parent is looked at.
    """
    while not select.select([lifeline], [], [], LOOKS_EVERY)[0] and os.getppid() == parent:
        pass
    os._exit(1)


def _portable(error: Exception) -> Exception | None:
    """The exception, if it can travel."""
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001  # an exception class may do anything when it is pickled
        return None
    return error


if __name__ == "__main__":
    main()
