"""What every test shares: hypothesis without deadlines, and the same examples each time, so that red means a change;
and the tensor shapes in the library's annotations checked at run time (jaxtyping and beartype)."""

import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook
from xdist.scheduler import LoadFileScheduling

from tests import shapes

# A suite that is started in the background ignores Ctrl-C, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray gives its workers the lowest priority: beside other tests, or anything else on the machine, they hardly move.
os.environ.setdefault("RAY_worker_niceness", "0")

ROOMS = ["esgd.engines", "esgd.genome", "esgd.operators", "esgd.population", "esgd.protocols"]
install_import_hook(ROOMS, f"{shapes.__name__}.checked")

# A busy machine is slow at everything, at drawing examples too.
settings.register_profile("esgd", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("esgd")


class FileByFile(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file go to one worker, so that its fixtures are made once; those with Ray go to one, too, because
    two Rays at a time mostly wait for one another."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "ray" if "test_ray" in file or "[Ray(" in nodeid else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    return FileByFile(config, log)
