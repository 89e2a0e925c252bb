"""What every test shares: hypothesis without deadlines, and the same examples each time, so that red means a change;
and the tensor shapes in the library's annotations checked at run time (jaxtyping and beartype)."""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests import shapes, warm

gc.disable()  # until everything is imported

# Where Python is told to keep no bytecode, every process of a test would compile esgd, and every worker all tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A suite that is started in the background or with nohup ignores signals, and so would every process that a test ends.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Ray gives its workers the lowest priority: beside other tests, or anything else on the machine, they hardly move.
os.environ.setdefault("RAY_worker_niceness", "0")

# What is compiled is small: processes that compile beside one another start for longer than they work.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

ROOMS = ["esgd.engines", "esgd.genome", "esgd.operators", "esgd.population", "esgd.protocols"]
shapes.install(ROOMS)

RAY = "ray"  # the group of tests that need one

# A busy machine is slow at everything, at drawing examples too.
settings.register_profile("esgd", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("esgd")


@pytest.fixture(autouse=True, scope="module")
def checked_shapes() -> None:
    """The first calls of each function are checked in every file."""
    shapes.calls.clear()


@pytest.fixture
def warm_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of pools are forks of a process that has imported torch: they start at once."""
    from esgd.engines.processes import executor

    monkeypatch.setattr(executor, "_started", warm.worker)


@pytest.fixture(scope="session")
def warm_ray_workers() -> Iterator[None]:
    """So are the workers of a Ray that a fixture starts."""
    with warm.ray_workers():
        yield


def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector need not look through it, a million objects, again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def group(nodeid: str) -> str:
    """The tests of a file go to one worker, so that its fixtures are made once. Those with Ray go to one, too, because
    two Rays at a time mostly wait for one another; and so do those with AN4, which every process aligns anew."""
    file, _, test = nodeid.partition("::")
    if "test_ray" in file or "[Ray(" in test:
        return RAY
    return "an4" if "an4_" in test else file


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, and no worker is left with it at the end: Ray, which waits most of the time,
    then the groups with most slow tests."""
    slow = Counter(group(item.nodeid) for item in items if item.get_closest_marker("slow"))
    slow[RAY] = len(items)
    items.sort(key=lambda item: -slow[group(item.nodeid)])


class GroupByGroup(LoadFileScheduling):  # type: ignore[misc]
    """Groups go to the workers in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupByGroup:
    config.option.loadscopereorder = False
    return GroupByGroup(config, log)
