"""Small runs with trackers: whole ones, and ones that stop in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import esgd
from esgd.integrations import Tracked, Tracker
from tests.small import classify

RECIPE = esgd.Recipe(population=3, offspring=4, generations=3, sgd_epochs=1)


def fit(run: Path | None, *trackers: Tracker, **changes: Any) -> esgd.Result:
    given = {"seed": 0, "progress": False, "report": False, "engine": "loop", **changes}
    return esgd.fit(classify(), RECIPE, run=run, trackers=trackers, **given)


class Interrupt:
    """A tracker whose reader presses Ctrl-C when a generation has gone by."""

    where, done = "the keyboard", 0

    def __init__(self, after: int) -> None:
        self.after = after

    def open(self, run: Tracked) -> Interrupt:
        return self

    def write(self, record: Any) -> None:
        if record["k"] == self.after:
            raise KeyboardInterrupt

    def close(self, model: Path | None) -> None:
        assert model is None, "an interrupted run has no final model"


def interrupted(run: Path, tracker: Tracker, *, after: int) -> None:
    """A run that is stopped by its user after some generations."""
    with pytest.raises(KeyboardInterrupt):
        fit(run, tracker, Interrupt(after), on_interrupt="raise")
