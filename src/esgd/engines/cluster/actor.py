"""What runs in the processes of a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from esgd.engines.cluster.messages import run_sent_job
from esgd.engines.cluster.parents import StoredSlices
from esgd.engines.cluster.serialized import Serialized
from esgd.engines.contract import Kernel
from esgd.engines.freed_memory import keep_freed_memory
from esgd.engines.worker_error import Failure


class Actor:
    """One worker: data and network are built once, then it runs the jobs that it is sent.

    Its answers are serialized, and an error of the user's code is an answer, too. An error of Ray itself is not: then
    the same work is given to another worker.
    """

    _kernel: Kernel

    def arrive(self) -> str:
        """On which node it is."""
        return str(ray.get_runtime_context().get_node_id())

    def prepare(self, serialized: Serialized, device: str, folder: str, paths: Sequence[str]) -> Serialized:
        """Build the kernel: what is serialized may need the script's folder and the modules beside it."""
        try:
            with suppress(OSError):  # not every node has it, and not every user may enter it
                os.chdir(folder)  # relative paths in the task mean the same as in the script
            sys.path += [path for path in paths if path not in sys.path]
            keep_freed_memory()
            engine, setup = serialized.take()
            torch.set_num_threads(engine.threads)
            self._kernel = replace(engine, device=device).kernel(setup)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
            return Serialized.of(_failure(error))
        return Serialized.of(None)

    def work(self, jobs: Serialized, slices: StoredSlices) -> Serialized:
        """Do the jobs of a message, one after the other; a failure is the last answer."""
        answers, parents = list[Any](), slices.source()
        try:
            for job in jobs.read():
                answers.append(run_sent_job(job, self._kernel, parents))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
            answers.append(_failure(error))
        try:
            return Serialized.of(answers)
        except Exception:  # noqa: BLE001  # an optimizer's state, for instance, may be anything
            return Serialized.of([_told(answer) for answer in answers])


def _failure(error: BaseException) -> Failure:
    """What the driver is to raise; an error of Ray itself, or its wish to end this process, is passed on."""
    if isinstance(error, RayError) or hasattr(error, "ray_terminate_msg"):
        raise error
    return Failure.of(error)


def _told(answer: Any) -> Any:
    """An answer, or why it cannot travel."""
    try:
        Serialized.of(answer)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
        return Failure.of(error)
    return answer
