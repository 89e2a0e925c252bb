"""ESGD on two workers of Ray, with a mishap.

python -m benchmarks.sides.ours_with_mishaps none|kill|diverge [--quick]      (a child; `mishaps.py` starts it)
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor, nn

import esgd
from benchmarks.children import Answer, serve
from benchmarks.workloads import EPOCHS, HOT, INDIVIDUALS, KILLED_AT, MISHAP_RATES, digits, fatal

# What a user writes, imports aside


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(x: Tensor, y: Tensor, loss: Any, species: Any, folder: Path) -> esgd.Result:
    task = esgd.Supervised(make_model, loss, train=(x[:1280], y[:1280]), fitness=(x[1280:], y[1280:]), nonnegative=True)
    recipe = esgd.Recipe(population=INDIVIDUALS, generations=3, sgd_epochs=EPOCHS, species=species)
    return esgd.fit(task, recipe, seed=0, run=folder, engine=esgd.Ray(workers=2), progress=False)


# Until here


def rates(draw: esgd.protocols.Draw, *, hot: bool) -> esgd.Policy:
    """The learning rates that PBT begins with, too; the first one may be absurd."""
    rate = HOT if hot and draw.k == 1 and draw.j == 0 else MISHAP_RATES[(draw.j + draw.k - 1) % INDIVIDUALS]
    return esgd.Policy(optimizer="sgd", hyper={"lr": rate, "momentum": 0.9})


class Ours:
    def __init__(self, mishap: str) -> None:
        self.mishap = mishap

    def open(self) -> None:
        """A run is opened and ended in its round."""

    def round(self) -> Answer:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            mark = Path(folder) / "killed" if self.mishap == "kill" else None
            loss = partial(fatal, mark=mark, calls=[0], at=KILLED_AT)
            begun, run = perf_counter(), Path(folder) / "run"
            result = train(*digits(1792), loss, partial(rates, hot=self.mishap == "diverge"), run)
            seconds = perf_counter() - begun
            written = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
        lost = sum("was lost" in str(each.message) for each in said)
        diverged = sum(line["diverged"] for line in result.history)
        outcome = f"{len(result.population)} of {INDIVIDUALS} individuals at the end"
        outcome += f"; {lost} worker lost, its work done again" if lost else ""
        outcome += f"; {diverged} diverged and backed off" if diverged else ""
        return {"seconds": seconds, "written": written, "fitness": result.fitness, "outcome": outcome}


if __name__ == "__main__":
    serve(lambda: Ours(sys.argv[1]))
