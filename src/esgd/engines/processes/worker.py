"""A worker process of a `Pool`: python -m esgd.engines.processes.worker SOCKET LIFELINE

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
from contextlib import closing
from typing import Any

import torch

from esgd.engines.freed_memory import keep_freed_memory
from esgd.engines.processes.memory import MappedSegments
from esgd.engines.processes.messages import Channel, pickled, unpack
from esgd.engines.worker_error import Failure

LOOKS_EVERY = 1.0  # seconds


def main() -> None:
    lifeline = int(sys.argv[2])
    keep_freed_memory()
    with closing(Channel(socket.socket(fileno=int(sys.argv[1])))) as channel:
        try:
            threading.Thread(target=_end_with, args=(lifeline, os.getppid()), daemon=True).start()
            _work(channel)
        except (EOFError, ConnectionError):
            return  # the pool is gone
        except Exception as error:  # noqa: BLE001  # no thread, no open file, no memory: it is the pool's to raise
            channel.send(pickled(Failure.of(error)))


def _work(channel: Channel) -> None:
    """Run the jobs that the pool sends."""
    mappings, kernel = MappedSegments(), None
    mine = MappedSegments(private=True)  # the task's: others have the same memory, and its code may write anywhere
    while True:
        message, descriptors = channel.receive()
        numbers, dropped, content, buffers = pickle.loads(message)
        for number, descriptor in zip(numbers, descriptors, strict=True):
            if kernel is None:
                mine.add(number, os.dup(descriptor))
            mappings.add(number, descriptor)
        mappings.drop(dropped)
        reply: Any = None  # a result, or a failure
        try:
            if kernel is None:
                engine, setup = unpack(content, mine, buffers)
                torch.set_num_threads(engine.threads)
                kernel = engine.kernel(setup)
            elif content is not None:  # if it is, only segments were to be dropped
                job = unpack(content, mappings, buffers)
                reply = job.run(kernel)
                del job
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the pool's to raise
            reply = Failure.of(error)
        channel.send(pickled(reply))
        del reply


def _end_with(lifeline: int, parent: int) -> None:
    """End at once when the pool is gone, in the middle of a job too.

    The pipe tells at once; but a process that the pool's has forked holds its other end as well, so now and then the
    parent is looked at.
    """
    while not select.select([lifeline], [], [], LOOKS_EVERY)[0] and os.getppid() == parent:
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
