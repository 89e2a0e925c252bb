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

from esgd.engines.failure import Failure
from esgd.engines.jobs import Bench
from esgd.engines.ray.letters import done
from esgd.engines.ray.parcel import Parcel
from esgd.engines.ray.shelf import Shelf


class Actor:
    """One worker: data and network are built once, then it does what letters ask for.

    What it answers is a parcel, so what goes wrong in the user's code is an answer as well. An error of Ray itself is
    not: then the same work is given to another.
    """

    _bench: Bench

    def arrive(self) -> str:
        """On which node it is."""
        return str(ray.get_runtime_context().get_node_id())

    def prepare(self, parcel: Parcel, device: str, folder: str, paths: Sequence[str]) -> Parcel:
        """Build the bench: what is in the parcel may need the script's folder and the modules beside it."""
        try:
            with suppress(OSError):  # not every node has it, and not everybody may enter it
                os.chdir(folder)  # relative paths in the task mean the same as in the script
            sys.path += [path for path in paths if path not in sys.path]
            engine, rules = parcel.take()
            torch.set_num_threads(engine.threads)
            self._bench = replace(engine, device=device).bench(rules)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
            return Parcel.of(_failure(error))
        return Parcel.of(None)

    def work(self, letter: Parcel, shelf: Shelf) -> Parcel:
        """Do the jobs of a letter, one after the other; a failure is the last answer."""
        answers, parents = list[Any](), shelf.source()
        try:
            for job in letter.read():
                answers.append(done(job, self._bench, parents))
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
            answers.append(_failure(error))
        try:
            return Parcel.of(answers)
        except Exception:  # noqa: BLE001  # an optimizer's state, for instance, may be anything
            return Parcel.of([_told(answer) for answer in answers])


def _failure(error: BaseException) -> Failure:
    """What the driver is to raise; an error of Ray itself, or its wish to end this process, goes on."""
    if isinstance(error, RayError) or hasattr(error, "ray_terminate_msg"):
        raise error
    return Failure.of(error)


def _told(answer: Any) -> Any:
    """An answer, or why it cannot travel."""
    try:
        Parcel.of(answer)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
        return Failure.of(error)
    return answer
