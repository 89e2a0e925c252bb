"""A small run that was stopped before its last generation: what fuzzed checkpoints and manifests are copies of."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.command import esgd

TENSORS, MODEL, STATE = "tensors.safetensors", "model.safetensors", "state.json"

OWN = """
import torch
from torch import nn
from torch.nn import functional as F
import esgd

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
TASK = esgd.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(X, Y), fitness=(X, Y), batch_size=8)
"""

SMALL = {"population": 2, "offspring": 2, "generations": 3, "sgd_epochs": 1, "baggage": "carried_by_mate"}


@dataclass(frozen=True)
class Subject:
    """The folder that has the task and its run, and what is in the files that are fuzzed."""

    home: Path
    state: bytes
    tensors: bytes
    model: bytes

    @property
    def run(self) -> Path:
        return self.home / "run"

    def copy(self, home: Path) -> Path:
        """The run and its task in another folder; returns the run."""
        shutil.copytree(self.home, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        return home / "run"


@cache
def subject() -> Subject:
    """Made once in a process; the folder goes when the process ends."""
    home = Path(tempfile.mkdtemp(prefix="esgd-fuzz-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "own.py").write_text(OWN)
    sets = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    done = esgd("run", "own:TASK", *sets, "--run", "run", "--engine", "loop", "--quiet", cwd=home)
    assert done.returncode == 0, done.stderr
    last, newest = sorted((home / "run" / "checkpoint").glob("0*"), reverse=True)
    shutil.rmtree(last)
    for path in (home / "run").rglob("history.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: int(newest.name)]))
    return Subject(
        home,
        state=(newest / STATE).read_bytes(),
        tensors=(newest / TENSORS).read_bytes(),
        model=(home / "run" / MODEL).read_bytes(),
    )
