"""What goes wrong in `mishaps.py`, and with what: for both sides alike, so nothing here imports the library."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path

from torch import Tensor
from torch.nn import functional as F

from benchmarks.workloads import GENERATION_EPOCHS, GENERATIONS, WORKLOADS, Workload

WORKERS, INDIVIDUALS = 2, 16
RATES, MOMENTUM, HOT = (1e-3, 1e-1), 0.9, 1e20


def population() -> Workload:
    """What is trained: MLPs on digits, `epochs` in a generation, at the size that is asked for."""
    workload = replace(WORKLOADS["W1"], individuals=INDIVIDUALS, epochs=GENERATION_EPOCHS)
    return replace(workload, individuals=4, samples=64, epochs=2) if "--quick" in sys.argv else workload


def rates(workload: Workload, *, hot: bool = False) -> list[float]:
    """A first learning rate for each individual, evenly spread over the range's logarithm; or one of them absurd."""
    low, high = map(log, RATES)
    evenly = [exp(low + (high - low) * i / (workload.individuals - 1)) for i in range(workload.individuals)]
    return [HOT, *evenly[1:]] if hot else evenly


@dataclass(frozen=True)
class Tally:
    """Cross-entropy that notes down every SGD step of the population, in any process: a byte each in one file.

    The process that takes step number `fatal` ends as by `kill -9`; no other does after that.
    """

    folder: Path
    asked: int  # steps of the whole run
    fatal: int | None

    @staticmethod
    def of(workload: Workload, folder: str, *, kill: bool) -> Tally:
        asked = workload.individuals * GENERATIONS * workload.steps
        return Tally(Path(folder), asked, fatal=asked // 2 if kill else None)

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if output.requires_grad:
            with self._file.open("ab", buffering=0) as file:
                file.write(b".")
                taken = file.tell()
            if self.fatal is not None and taken >= self.fatal:
                self._die_once()
        return F.cross_entropy(output, target)

    def _die_once(self) -> None:
        try:
            (self.folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    @property
    def _file(self) -> Path:
        return self.folder / "steps"

    @property
    def share(self) -> float:
        """Steps that were taken, for each that was asked for."""
        return self._file.stat().st_size / self.asked


def size(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
