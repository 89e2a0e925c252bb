"""When to give up: a job that ends its workers is told from nodes that are taken away."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from time import monotonic, sleep

from ray.exceptions import RayError, RayTaskError

from esgd.engines.cluster.resources import living

MOST_LOSSES = 3
"""So many workers may be lost over one job, on nodes that are still there, before the run stops: the job itself must be
to blame. Getting ready may fail in so many rounds of all workers."""

MOST_LOSSES_WITH_NODES = 10
"""So many may be lost over one job even if their nodes went with them: one that exhausts a node ends it as well."""


SETTLED = 20.0
"""Seconds until Ray has noticed that a node is gone: connections break at once, the cluster's list is slower."""


def must_give_up(nodes: Sequence[str]) -> bool:
    """Whether a job that was lost on these nodes is to blame, so that it is not tried again. A node that was taken away
    says nothing of it.

    Before a job is blamed, the cluster gets the time to notice which of the nodes are gone.
    """
    if len(nodes) >= MOST_LOSSES_WITH_NODES:
        return True
    end = monotonic() + SETTLED
    while sum(node in living() for node in nodes) >= MOST_LOSSES:
        if monotonic() >= end:
            return True
        sleep(1.0)
    return False


def was_lost(error: RayError) -> bool:
    """Whether a process, a node or an answer was lost, and not something wrong with what was asked for."""
    return not isinstance(error, RayTaskError) or isinstance(error.cause, RayError)


def failed_itself(error: RayError) -> bool:
    """Whether it is not the process or the node that was lost: something is wrong with this package there."""
    return getattr(error, "actor_init_failed", False)


def cause(error: RayError) -> str:
    """What Ray says of a loss, without what every loss has in common."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return shorten(lines[-1] if failed_itself(error) else " ".join(lines[1:] or lines), 300, placeholder=" …")
