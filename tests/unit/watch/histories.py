"""Runs as they lie on disk, without training anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def line(k: int, *, best: float | None = None) -> dict[str, Any]:
    """Generation k of two individuals, one of them bred in it."""
    best = 1.0 / k if best is None else best
    before = f"{k - 1}.1.0" if k > 1 else "0.0.0"
    return {
        "k": k,
        "stage": "evolution",
        "best": best,
        "elite_mean": best,
        "fitness": [best, 2.0 * best],
        "offspring_among_elites": 1.0,
        "backed_off": 1,
        "checked": 2,
        "diverged": 0,
        "founders": 2,
        "diversity": 0.5,
        "leader": {"optimizer": "adam", "lr": 0.01},
        "policies": [
            {"id": before, "optimizer": "adam", "lr": 0.01, "before": 2 * best, "after": 1.5 * best, "accepted": True},
            {"id": "0.0.1", "optimizer": "sgd", "lr": 0.5, "before": 2 * best, "after": 2 * best, "accepted": False},
        ],
        "births": [
            {"id": f"{k}.1.0", "parents": [before, "0.0.1"], "sigma": 0.01, "founder": 0},
            {"id": "0.0.1", "parents": [], "sigma": 0.0, "founder": 1},
        ],
        "test": {"loss": 1.1 * best},
        "ledger": {"sgd_forward": 100, "sgd_backward": 100, "fitness_sgd": 10, "fitness_evolution": 10},
        "seconds": {"sgd": 1.0, "fitness": 0.2, "evolution": 0.1, "checkpoint": 0.0, "other": 0.0},
        "guarantee": "held",
        "waiver": "",
        "notes": [],
    }


def write_run(folder: Path, *, generations: int, planned: int = 5, seed: int = 0) -> Path:
    """A run that has come so far."""
    folder.mkdir(parents=True)
    manifest = {"seed": seed, "recipe": {"population": 2, "generations": planned}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "history.jsonl").write_text("".join(json.dumps(line(k)) + "\n" for k in range(1, generations + 1)))
    return folder
