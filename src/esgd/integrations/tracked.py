"""Trackers around your own loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from uuid import uuid4

from esgd.generation import Generation
from esgd.progress import announce
from esgd.progress.tracking import Followers, Tracked, Tracker, check_trackers, following


def tracked(generations: Iterable[Generation], *trackers: Tracker, name: str = "esgd") -> Iterator[Generation]:
    """The same generations; each is also sent to the trackers.

    Logbooks are opened at the call, so a wrong address costs no training. Each call is a new run in the trackers. To
    continue the old run after a stop, use `fit(run=…, trackers=…)`.
    """
    check_trackers(trackers)
    stack = ExitStack()
    subject = Tracked(id=uuid4().hex, name=name)
    followers = stack.enter_context(following(trackers, subject, say=announce, warn=announce))
    return _passing(generations, followers, stack)


def _passing(generations: Iterable[Generation], followers: Followers, stack: ExitStack) -> Iterator[Generation]:
    told, archive = 0, None
    with stack:
        for generation in generations:
            for line in generation.state.history[told:]:  # a run that continues from a state has its past with it
                followers.write(line)
            told, archive = generation.k, generation.state.archive
            yield generation
            del generation  # while the next one is made, this one is not kept in memory
        if archive is not None:
            followers.finish(archive.best.module())
