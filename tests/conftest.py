"""What every test shares: hypothesis without deadlines, and the same examples each time, so that red means a change;
and the tensor shapes in the library's annotations checked at run time (jaxtyping and beartype)."""

import gc
import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests import shapes, warm

# A suite that is started in the background ignores Ctrl-C, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray gives its workers the lowest priority: beside other tests, or anything else on the machine, they hardly move.
os.environ.setdefault("RAY_worker_niceness", "0")

ROOMS = ["esgd.engines", "esgd.genome", "esgd.operators", "esgd.population", "esgd.protocols"]
shapes.install(ROOMS)

# A busy machine is slow at everything, at drawing examples too.
settings.register_profile("esgd", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("esgd")


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of pools are forks of a process that has imported torch: they start at once."""
    from esgd.engines.processes import executor

    monkeypatch.setattr(executor, "_started", warm.worker)


def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector need not look through it, a million objects, again and again."""
    gc.collect()
    gc.freeze()


class FileByFile(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file go to one worker, so that its fixtures are made once. Those with Ray go to one, too, because
    two Rays at a time mostly wait for one another; and so do those with AN4, which every process aligns anew."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if "test_ray" in file or "[Ray(" in nodeid:
            return "ray"
        return "an4" if "an4_" in nodeid.partition("::")[2] else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    return FileByFile(config, log)
