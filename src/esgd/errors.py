"""Errors a person can act on: what is wrong, with the value; why, in the paper's terms; what to do.

    elites=120 exceeds population=100. Algorithm 1 keeps the m best of μ, so 1 ≤ elites ≤ population.
    Use elites=0.6 for the paper's 60%.

Everything here derives from `EsgdError`; `assert` is kept for our own invariants.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

QUOTED = 300
"""Characters of a value that an error quotes at most."""


class EsgdError(Exception):
    """Root of every error this library raises on purpose."""


class RecipeError(EsgdError, ValueError):
    """An input of Algorithm 1 is out of range, misspelt or contradicts another."""


class ForeignCodeError(RecipeError):
    """What was read from a file names code that the caller has not allowed."""


class TaskError(EsgdError, ValueError):
    """The network, the loss or the data cannot be trained as given."""


class FitnessError(EsgdError, ArithmeticError):
    """The fitness breaks a condition of Theorem 1, or is not finite for any individual."""


class RunError(EsgdError, OSError):
    """A run folder cannot be read, written or continued."""


class DataError(EsgdError, OSError):
    """A file of a dataset is missing, truncated, corrupt, or not what it should be."""


class MissingDataError(DataError):
    """There are no data yet: nothing is wrong with them."""


class EngineError(EsgdError, RuntimeError):
    """The machine, or what runs on it, cannot do the work: workers die, memory is full, a task cannot be sent."""


class TrackerError(EsgdError, RuntimeError):
    """A tracker cannot be opened, or a value is not a tracker; raised before training starts."""


class StopRun(Exception):  # noqa: N818  # it is no error: it ends a run as StopIteration ends a loop
    """Raised by a stop rule or a callback of `fit` to stop the run; its text is the reason."""


class MissingExtraError(EsgdError, ImportError):
    """An optional package is needed; the message names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed. Install it with: pip install 'esgd[{extra}]'"
        )


def shown(value: object) -> str:
    """A value as an error quotes it: its repr, cut where that is long.

    >>> shown("x" * 1000)[-9:]
    'xxxxxxxx…'
    """
    try:
        text = repr(value)
    except ValueError:  # Python prints no number of more than some thousand digits
        text = f"{type(value).__name__} of too many digits"
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known word, or lists them all.

    >>> did_you_mean("popluation", ["population", "offspring"])
    "Did you mean 'population'?"
    >>> did_you_mean("f1", [])
    'None is known.'
    """
    options = sorted(known)
    if not options:
        return "None is known."
    close = get_close_matches(name, options, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(options)}."
