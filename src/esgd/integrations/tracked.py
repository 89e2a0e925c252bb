"""Trackers around a loop of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from uuid import uuid4

from esgd.generation import Generation
from esgd.progress import announce
from esgd.tracking import Followers, Tracked, Tracker, check_trackers, following


def tracked(generations: Iterable[Generation], *trackers: Tracker, name: str = "esgd") -> Iterator[Generation]:
    """The same generations, each sent to the trackers as it passes by.

    Logbooks are opened here and now, so a wrong address costs no training. Each call is a new run in the trackers; to
    go on in the old one after a stop, use `fit(run=…, trackers=…)`.
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
            for line in generation.state.history[told:]:  # a run that goes on from a state brings its past along
                followers.write(line)
            told, archive = generation.k, generation.state.archive
            yield generation
            del generation  # while the next one is made, nobody holds this one
        if archive is not None:
            followers.finish(archive.best.module())
