"""How often is a frozen base in memory while a population of adapters is trained on it?

    python -m benchmarks.one_base [loop pool ray] [--megabytes 20] [--population 8]

Each engine trains eight individuals twice, each time in a process of its own: once on a base of so many megabytes, once
on one of next to nothing. The difference, in bases, is how often the base is there: in shared memory (proportional set
size of all processes of the run, so that a page that several map counts once), in memory of the calling process alone,
and the most that one worker has for itself. Measured when the first generation has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd.engines import Loop, Pool, Ray
from esgd.operators import Perturbed

RANK = 4
ENGINES = {"loop": Loop, "pool": lambda: Pool(workers=2), "ray": lambda: Ray(workers=2, patience=600)}


class Adapted(nn.Module):
    """One frozen square layer of so many bytes, with an adapter; inputs are widened to fit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.base = nn.Linear(size, size, bias=False).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(size, RANK, bias=False), nn.Linear(RANK, size, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.pad(x, (0, self.base.in_features - x.shape[1]))
        return (self.base(wide) + self.lora_B(self.lora_A(wide)))[:, :2]


def of_process(pid: int) -> tuple[int, int] | None:
    """Its part of shared memory, and what it has for itself, in bytes; None if it has ended."""
    try:
        words = Path(f"/proc/{pid}/smaps_rollup").read_text().split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    found = {name.rstrip(":"): int(words[i + 1]) << 10 for i, name in enumerate(words) if name.endswith(":")}
    return found["Pss_Shmem"], found["Pss_Anon"]


def descendants(pid: int) -> list[int]:
    """All processes that come from this one."""
    children = defaultdict[int, list[int]](list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children[parent].append(int(stat.parent.name))
    found, new = list[int](), [pid]
    while new:
        found += new
        new = [child for each in new for child in children[each]]
    return found


class Measured:
    """A callback that measures when the first generation has ended: workers and populations are there."""

    def __init__(self, pid: int) -> None:
        self.pid, self.found = pid, dict[str, int]()

    def on_generation_end(self, generation: esgd.Generation) -> None:
        each = {pid: of_process(pid) for pid in descendants(self.pid)}
        known = {pid: sizes for pid, sizes in each.items() if sizes is not None}
        self.found = {
            "shared": sum(shared for shared, _ in known.values()),
            "driver": known[self.pid][1],
            "worker": max((own for pid, (_, own) in known.items() if pid != self.pid), default=0),
        }


def measure(engine: str, megabytes: float, population: int) -> dict[str, int]:
    size = max(4, round((megabytes * 2**20 / 4) ** 0.5))
    x = torch.randn(64, 4)
    y = (x[:, 0] > 0).long()
    calls = list[int]()

    def make_model() -> nn.Module:
        calls.append(1)
        return Adapted(size)

    task = esgd.Supervised(make_model, F.cross_entropy, train=(x, y), fitness=(x, y))
    recipe = esgd.Recipe(population=population, generations=2, sgd_epochs=1, start=Perturbed(sigma=0.0))
    measured = Measured(os.getpid())
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        esgd.fit(
            *(task, recipe),
            seed=0,
            run=run,
            report=False,
            engine=ENGINES[engine](),
            progress=False,
            callbacks=[measured],
        )
        largest = max(path.stat().st_size for path in run.rglob("*") if path.is_file())
        model = (run / "model.safetensors").stat().st_size
    return {**measured.found, "calls": len(calls), "model": model, "largest": largest, "base": 4 * size * size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=list(ENGINES))
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--population", type=int, default=8)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.engines[0], given.megabytes, given.population)))
        return
    for engine in given.engines:
        with_base, without = (
            json.loads(
                subprocess.run(
                    [
                        *(sys.executable, "-m", "benchmarks.one_base", engine, "--one"),
                        *("--megabytes", str(size), "--population", str(given.population)),
                    ],
                    check=True,
                    stdout=subprocess.PIPE,
                ).stdout.splitlines()[-1]
            )
            for size in (given.megabytes, 0.001)
        )
        base = with_base["base"]
        more = {name: (with_base[name] - without[name]) / base for name in ("shared", "driver", "worker")}
        print(
            f"{engine}: bases in shared memory {more['shared']:.2f}, in the calling process alone "
            f"{more['driver']:.2f}, in a worker alone at most {more['worker']:.2f}; make_model was called "
            f"{with_base['calls']} times; of a base, "
            f"model.safetensors is {with_base['model'] / base:.3f}, the largest file {with_base['largest'] / base:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
