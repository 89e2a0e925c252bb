"""A comparison that is killed inside an arm goes on where it was, and finds what it would have found."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.warm import Process, python

SETS = {"population": 4, "offspring": 4, "elites": 2, "generations": 4, "sgd_epochs": 1}


def command(out: Path) -> list[str]:
    changes = [word for name, value in SETS.items() for word in ("--set", f"{name}={value}")]
    options = ["--out", str(out), "--engine", "loop:threads=1", "--json", "--quiet"]
    return ["-m", "esgd", "compare", "digits", *changes, *options]


def compared(out: Path) -> dict[str, Any]:
    done = python(*command(out), cwd=out.parent)
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
    with Path(os.devnull).open("r+b") as nothing:
        running = Process(*command(tmp_path / "killed"), cwd=tmp_path, streams=[nothing.fileno()] * 3)
    history, end = tmp_path / "killed" / "seed-0" / "population" / "history.jsonl", monotonic() + 900
    while not history.is_file() and monotonic() < end:
        sleep(0.01)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    assert 0 < len(history.read_bytes().splitlines()) < SETS["generations"], "it was to be killed in the middle"
    assert compared(tmp_path / "killed") == compared(tmp_path / "quiet")
