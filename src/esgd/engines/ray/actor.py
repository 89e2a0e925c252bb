"""What runs in the processes of a cluster."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import cloudpickle
import ray
import torch

from esgd.engines.jobs import Bench
from esgd.engines.ray.letters import Letter, Library

Reply = tuple[str, Any]
"""("done", result), or ("failed", (exception or None, traceback))."""


class Actor:
    """One worker: data and network are built once, then it opens letters."""

    def __init__(self) -> None:
        self._bench: Bench | None = None
        self._library = Library(lambda references: ray.get(references))

    def prepare(self, parcel: list[Any]) -> Reply:
        """Build the bench from the task; the reference is in a list so that Ray does not fetch it before we ask."""
        return self._attempt(lambda: self._build(ray.get(parcel[0]).open()))

    def open(self, letter: Letter) -> Reply:
        assert self._bench is not None, "prepare comes first"
        bench = self._bench
        return self._attempt(lambda: letter.open(bench, self._library))

    def _build(self, welcome: tuple[Any, Any]) -> None:
        engine, rules = welcome
        torch.set_num_threads(engine.threads or 1)
        self._bench = engine.bench(rules)

    def _attempt(self, work: Any) -> Reply:
        try:
            return "done", work()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the driver's to raise
            return "failed", (_portable(error), traceback.format_exc())


def _portable(error: Exception) -> Exception | None:
    """The exception, if it can travel."""
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001  # an exception class may do anything when it is pickled
        return None
    return error
