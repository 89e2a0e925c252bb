"""A comparison that is killed inside an arm goes on where it was, and finds what it would have found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

SETS = {"population": 4, "offspring": 4, "elites": 2, "generations": 4, "sgd_epochs": 1}


def command(out: Path) -> list[str]:
    changes = [word for name, value in SETS.items() for word in ("--set", f"{name}={value}")]
    options = ["--out", str(out), "--engine", "loop:threads=1", "--json", "--quiet"]
    return [sys.executable, "-m", "esgd", "compare", "digits", *changes, *options]


def compared(out: Path) -> dict[str, Any]:
    done = subprocess.run(command(out), capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for entries in found["arms"].values():
        for entry in entries:
            del entry["seconds"]
    return {"arms": found["arms"], "soup": [{**entry, "seconds": None} for entry in found["soup"]]}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills a process by a signal")
def test_a_comparison_killed_inside_an_arm_finds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    running = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    history, end = tmp_path / "killed" / "seed-0" / "population" / "history.jsonl", monotonic() + 200
    while not history.is_file() and running.poll() is None and monotonic() < end:
        sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert 0 < len(history.read_bytes().splitlines()) < SETS["generations"], "it was to be killed in the middle"
    assert compared(tmp_path / "killed") == compared(tmp_path / "quiet")
