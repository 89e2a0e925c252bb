"""What earlier versions wrote is read by this one: a run folder resumes with its bits, and arms train as they did.

The folder and the figures in `before/` were written by the version of the first stage and are never written again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import esgd as library
from esgd.run import read_history
from tests.command import esgd
from tests.unit.run.before.task import recipe, task

BEFORE = Path(__file__).with_name("before")
CLOCKS = ("seconds", "notes", "bytes_moved")  # notes may be worded anew


def close(now: Any, before: Any) -> Any:
    """Equal; numbers up to the rounding of another processor."""
    if isinstance(before, dict):
        assert set(before) <= set(now)  # a later version may say more
        return all(close(now[name], value) for name, value in before.items() if name not in CLOCKS)
    if isinstance(before, list):
        return len(now) == len(before) and all(map(close, now, before))
    return now == (pytest.approx(before, rel=1e-6) if isinstance(before, float) else before)


@pytest.mark.slow
def test_a_run_folder_of_an_earlier_version_resumes_with_its_bits(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(BEFORE / "run", tmp_path / "run"))
    result = library.fit(task, recipe, seed=11, run=folder, engine="loop", progress=False, report=False)
    assert close(result.history, json.loads((BEFORE / "expected.json").read_text()))
    assert len(read_history(folder / "checkpoint" / "history.jsonl")) == len(result.history), (
        "its checkpoints had their own"
    )
    assert esgd("verify", folder, cwd=tmp_path).returncode == 0


@pytest.mark.slow
def test_every_arm_of_the_digits_comparison_trains_as_before(tmp_path: Path) -> None:
    words = ("--set", "generations=2", "--set", "sgd_epochs=2", "--engine", "loop:threads=1", "--json", "--quiet")
    done = esgd("compare", "digits", "--seeds", "1", *words, "--out", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, before = json.loads(done.stdout)["arms"], json.loads((BEFORE / "digits.json").read_text())["arms"]
    for name, (arm,) in before.items():
        (now,) = found[name]
        assert now["fitness"] == pytest.approx(arm["fitness"], rel=1e-4), name
        assert now["ledger"] == arm["ledger"], name
