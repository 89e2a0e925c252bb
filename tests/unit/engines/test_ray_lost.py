"""Processes of Ray that die under a run, and signals to the driver: it says what happened, and nothing is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
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
import torch
from torch import nn
from torch.nn import functional as F
import esgd

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()

task = esgd.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y), batch_size=8)
"""
SETS = ["--set", "population=3", "--set", "offspring=3", "--set", "sgd_epochs=1", "--set", "generations=1000000"]


class Driver:
    """A command that trains on a Ray of its own and has finished a generation."""

    def __init__(self, home: Path) -> None:
        (home / "own.py").write_text(OWN)
        self.history = home / "r" / "history.jsonl"
        self.process = warm.Piped(
            *("-m", "esgd", "run", "own:task", "--run", "r", "--engine", "ray:workers=1", *SETS),
            cwd=home,
            process_group=True,
            env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        )
        assert until(lambda: self.has_trained() or self.process.has_ended()), "nothing was trained"
        assert self.has_trained(), self.process.communicate()
        self.started = descendants(self.process.pid)

    def has_trained(self) -> bool:
        return self.history.is_file() and self.history.stat().st_size > 0

    def find(self, name: str) -> int:
        """A process that the driver has started."""
        return next(pid for pid, command in self.started.items() if f"/{name} " in command)

    def ended(self) -> tuple[int, str]:
        """The exit code, and what it said, when nothing of Ray is left."""
        _, said = self.process.communicate(timeout=PATIENCE)
        assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in self.started)), "something of Ray is left"
        return self.process.returncode, said


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    if driver.process.returncode is None:
        os.killpg(driver.process.pid, signal.SIGKILL)
        driver.process.communicate()


@pytest.mark.parametrize(("process", "name"), [("raylet", "raylet"), ("gcs_server", "GCS")])
def test_a_process_of_ray_that_dies_is_named_and_the_run_can_be_continued(
    driver: Driver, tmp_path: Path, process: str, name: str
) -> None:
    os.kill(driver.find(process), signal.SIGKILL)
    code, said = driver.ended()
    assert code == 2, said
    assert f"error: Ray's {name} on this machine has died" in said
    assert "generations are saved in r. To continue: esgd resume r --allow-code own" in said
    assert "Traceback" not in said
    assert esgd("verify", "r", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_driver_that_is_terminated_takes_its_ray_down_and_says_how_to_continue(
    driver: Driver, tmp_path: Path, number: signal.Signals
) -> None:
    driver.process.send_signal(number)
    code, said = driver.ended()
    assert code == 128 + number, said
    assert "generations are saved in r. To continue: esgd resume r --allow-code own" in said
    assert "Traceback" not in said
    assert esgd("verify", "r", cwd=tmp_path).returncode == 0
