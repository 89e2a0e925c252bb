"""Trackers beside a run: told of every generation, never able to stop it.

A tracker is asked once, before anything is trained, to open a logbook; a wrong address is an error then. From there on
the run comes first: a logbook that fails is named once, what it missed is kept, and it is tried again when twice as
much is waiting and at the end. A logbook says which generation it has last, so a resumed run writes nothing twice and
leaves no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

from safetensors import SafetensorError
from torch import nn

from esgd.errors import EsgdError, TrackerError
from esgd.run.model import save_network

Record = Mapping[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """The run, as a tracker is told of it.

    | field      | meaning                                                                       |
    |------------|-------------------------------------------------------------------------------|
    | `id`       | stays the same when the run is resumed; a tracker finds its own run again by it |
    | `name`     | for people                                                                    |
    | `manifest` | recipe, seed, engine, data, versions; empty where there is none               |
    """

    id: str
    name: str
    manifest: Mapping[str, Any] = field(default_factory=dict)


class Logbook(Protocol):
    """What a tracker writes one run into. `where` tells people where to look, `done` is the last generation it has."""

    where: str
    done: int

    def write(self, record: Record) -> None:
        """Take down a generation: its line in the history."""
        ...

    def close(self, model: Path | None) -> None:
        """The run is over, and the fittest network is in this safetensors file; or, with None, it was stopped."""
        ...


@runtime_checkable
class Tracker(Protocol):
    """A place to follow runs: a small value with one method."""

    def open(self, run: Tracked) -> Logbook: ...


class Follower:
    """One logbook and what it has yet to be told."""

    def __init__(self, tracker: Tracker, run: Tracked, say: Say, warn: Say) -> None:
        self._name, self._warn = type(tracker).__name__, warn
        try:
            self._logbook = tracker.open(run)
        except EsgdError:
            raise
        except Exception as error:
            raise TrackerError(
                f"{tracker!r} cannot be opened: {_told(error)}. Nothing was trained yet. Check the address and what it "
                f"needs, or leave the tracker out."
            ) from error
        self._waiting, self._patience = list[Record](), 1
        say(f"{self._name}: {self._logbook.where}")

    def write(self, record: Record) -> None:
        """Pass a generation on, and with it whatever could not be passed on before."""
        if record["k"] > self._logbook.done and record["k"] not in [waiting["k"] for waiting in self._waiting]:
            self._waiting.append(record)
        if len(self._waiting) >= self._patience:
            self._send()

    def close(self, model: Path | None) -> None:
        """Pass on the rest and the model; what does not go through is said, and the run is none the worse."""
        if self._waiting and not self._send():
            generations = "1 generation" if len(self._waiting) == 1 else f"{len(self._waiting)} generations"
            self._warn(f"{self._name}: {generations} did not get there; the run's own history has all of them.")
            model = None  # half a run is not called finished
        try:
            self._logbook.close(model)
        except Exception as error:  # noqa: BLE001  # a tracker may fail in any way; the run has its result
            self._warn(f"{self._name} could not be closed: {_told(error)}.")

    def _send(self) -> bool:
        failed_before = self._patience > 1
        try:
            while self._waiting:
                self._logbook.write(self._waiting[0])
                del self._waiting[0]
        except Exception as error:  # noqa: BLE001  # a tracker may fail in any way; training continues
            if not failed_before:
                self._warn(f"{self._name} failed: {_told(error)}. The run continues; it is tried again later.")
            self._patience = 2 * len(self._waiting)
            return False
        if failed_before:
            self._warn(f"{self._name} is back, with every generation.")
        self._patience = 1
        return True


class Followers:
    """All trackers of a run; one that fails does not affect the others."""

    def __init__(self, warn: Say) -> None:
        self._warn, self._followers = warn, list[Follower]()

    def add(self, follower: Follower) -> None:
        self._followers.append(follower)

    def write(self, record: Record) -> None:
        """Send a generation to all trackers."""
        for follower in self._followers:
            follower.write(record)

    def finish(self, fittest: nn.Module) -> None:
        """Tell all trackers that the run has ended, and give them the network."""
        followers, self._followers = self._followers, []
        if not followers:
            return
        with TemporaryDirectory(prefix="esgd-") as folder:
            file = Path(folder) / "model.safetensors"
            model: Path | None = file
            try:
                save_network(fittest, file)
            except (OSError, SafetensorError) as error:
                self._warn(f"The trackers get no model: {_told(error)}.")
                model = None
            for follower in followers:
                follower.close(model)

    def stop(self) -> None:
        """Tell the remaining trackers that the run was stopped before its end."""
        for follower in self._followers:
            follower.close(None)


@contextmanager
def following(trackers: Iterable[Tracker], run: Tracked, *, say: Say, warn: Say) -> Iterator[Followers]:
    """Open a logbook with every tracker, `say` where it is, `warn` of what fails, and close all whatever happens."""
    followers = Followers(warn)
    try:
        for tracker in trackers:
            followers.add(Follower(tracker, run, say, warn))
        yield followers
    finally:
        followers.stop()


def check_trackers(trackers: object) -> None:
    """Refuse a value that is not a list of trackers, before anything else is done."""
    if isinstance(trackers, Tracker) or not isinstance(trackers, Iterable):
        raise TrackerError(f"trackers={trackers!r} is not a list. Write trackers=[TensorBoard('tb')], with brackets.")
    for tracker in trackers:
        if isinstance(tracker, type) or not isinstance(tracker, Tracker):
            raise TrackerError(
                f"{tracker!r} among the trackers is not a tracker: it cannot open a logbook. Use one of "
                f"esgd.integrations, such as TensorBoard('tb'), or a value of your own with open(run)."
            )


def _told(error: Exception) -> str:
    """The first line of what was said: clients append requests, headers and traces."""
    said = str(error).strip().splitlines() or [type(error).__name__]
    return said[0].rstrip(".")[:300]
