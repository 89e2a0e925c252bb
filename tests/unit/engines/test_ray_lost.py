"""Processes of Ray that die under a run, and signals to the driver: it says what happened, and nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import warm
from tests.command import esgd
from tests.unit.engines.clusters import PATIENCE, descendants, until

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not Path("/proc/self/fd").is_dir(), reason="finds the processes of Ray in /proc, which only Linux has"
    ),
]

OWN = """
from pathlib import Path
from time import sleep

import torch
from torch import nn
from torch.nn import functional as F
import esgd

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()

def loss(output, target):
    while Path("r/history.jsonl").is_file():  # in generation 2
        Path("waits").touch()
        sleep(0.1)
    return F.cross_entropy(output, target)

task = esgd.Supervised(lambda: nn.Linear(4, 2), loss, train=(x, y), fitness=(x, y), batch_size=8)
"""
SETS = ["--set", "population=3", "--set", "offspring=3", "--set", "sgd_epochs=1", "--set", "generations=1000000"]


class Driver:
    """A command that trains on a Ray of its own, has finished a generation, and waits for the SGD of the next one."""

    def __init__(self, home: Path) -> None:
        (home / "own.py").write_text(OWN)
        self.home, self._worker_waits = home, (home / "waits").is_file
        self.process = warm.Piped(
            *("-m", "esgd", "run", "own:task", "--run", "r", "--engine", "ray:workers=1", *SETS),
            cwd=home,
            process_group=True,
            env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        )

    def wait(self) -> None:
        """Until no answer of Ray is on its way: Ray ends a driver that just reads one when the raylet dies."""
        assert until(lambda: self._worker_waits() or self.process.has_ended()), "nothing was trained"
        assert self._worker_waits(), self.process.communicate()
        self.started = descendants(self.process.pid)

    def find(self, name: str) -> int:
        """A process that the driver has started."""
        return next(pid for pid, command in self.started.items() if f"/{name} " in command)

    def ended(self) -> tuple[int, str]:
        """The exit code, and what it said, when nothing of Ray is left."""
        _, said = self.process.communicate(timeout=PATIENCE)
        assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in self.started)), "something of Ray is left"
        return self.process.returncode, said


@contextmanager
def drivers(*homes: Path) -> Iterator[list[Driver]]:
    """They start beside one another."""
    started = list[Driver]()
    try:
        started.extend(map(Driver, homes))
        for driver in started:
            driver.wait()
        yield started
    finally:
        for driver in started:
            if driver.process.returncode is None:
                os.killpg(driver.process.pid, signal.SIGKILL)
                driver.process.communicate()


def test_a_process_of_ray_that_dies_is_named_and_the_run_can_be_continued(tmp_path: Path) -> None:
    """Two runs at a time: until Ray's own agents have noticed takes a minute."""
    names = {"raylet": "raylet", "gcs_server": "GCS"}
    homes = [tmp_path / process for process in names]
    for home in homes:
        home.mkdir()
    with drivers(*homes) as started:
        for driver in started:
            os.kill(driver.find(driver.home.name), signal.SIGKILL)
        for driver in started:
            code, said = driver.ended()
            assert code == 2, said
            assert f"error: Ray's {names[driver.home.name]} on this machine has died" in said
            check_saved(driver.home, said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_driver_that_is_terminated_takes_its_ray_down_and_says_how_to_continue(
    tmp_path: Path, number: signal.Signals
) -> None:
    with drivers(tmp_path) as [driver]:
        driver.process.send_signal(number)
        code, said = driver.ended()
    assert code == 128 + number, said
    check_saved(tmp_path, said)


def check_saved(home: Path, said: str) -> None:
    """The run is whole, and its driver has said how to continue it."""
    assert "generation is saved in r. To continue: esgd resume r --allow-code own" in said
    assert "Traceback" not in said
    assert esgd("verify", "r", cwd=home).returncode == 0
