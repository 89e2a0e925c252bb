"""An exception on its way from a worker, wherever that is, to the process that asked for the work."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import NoReturn

import cloudpickle

from esgd.errors import EngineError


class InWorkerError(Exception):
    """Where an error arose in a worker."""

    def __str__(self) -> str:
        return "in a worker:\n\n" + str(self.args[0])


@dataclass(frozen=True, eq=False)
class Failure:
    """An exception, if it can travel, its type and words, and the traceback it had where it was raised."""

    error: Exception | None
    words: str
    trace: str

    @staticmethod
    def of(error: BaseException) -> Failure:
        """The exception that is being handled; one that would end or interrupt the process is told in words."""
        travelling = error if isinstance(error, Exception) and _can_travel(error) else None
        return Failure(travelling, f"{type(error).__name__}: {error}", traceback.format_exc())

    def raise_again(self, what: str = "") -> NoReturn:
        """The worker's own exception where it could travel; a note says what it was at, its cause where."""
        error = self.error or EngineError(f"a worker failed: {self.words}")
        if what:
            error.add_note(f"This was {what}.")
        raise error from InWorkerError(self.trace)


def _can_travel(error: Exception) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001  # an exception class may do anything when it is pickled
        return False
    return True
