"""What the views show of a run: its history, generation by generation, without what no view shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from esgd.ledger import passes
from esgd.report.arms import History, finite
from esgd.report.series import best, last_of_top, offspring_share, refused_share
from esgd.report.tables import policy_words
from esgd.report.views.ancestry import family_tree

Digest = dict[str, Any]


def run_digest(name: str, manifest: Mapping[str, Any], history: History) -> Digest:
    """A whole run, as plain JSON."""
    return {**facts(name, manifest), "lines": [line_digest(line) for line in history], "tree": family_tree(history)}


def facts(name: str, manifest: Mapping[str, Any]) -> Digest:
    """What is known of a run before its first generation ends."""
    recipe = manifest.get("recipe") or {}
    planned, tuned = _whole(recipe.get("generations")), recipe.get("fine_tuning") is not None
    return {
        "name": name,
        "seed": _whole(manifest.get("seed")),
        "population": _first(recipe.get("population")),
        "generations": None if planned is None else planned + tuned,
    }


def line_digest(line: Mapping[str, Any]) -> Digest:
    """One generation; a field that an older run did not write is null."""
    return {
        "k": line["k"],
        "stage": line.get("stage", "evolution"),
        "best": best(line),
        "top": last_of_top(line),
        "elites": finite(line["elite_mean"]),
        "share": offspring_share(line),
        "refused": refused_share(line),
        "trained": len(line.get("policies", ())),
        "backed_off": line["backed_off"],
        "diverged": line.get("diverged", 0),
        "founders": line.get("founders"),
        "diversity": finite(line.get("diversity")),
        "leader": policy_words(line["leader"]),
        "test": {name: finite(value) for name, value in (line.get("test") or {}).items()},
        "ledger": line["ledger"],
        "work": passes(line["ledger"]),
        "seconds": {phase: finite(seconds) or 0.0 for phase, seconds in line["seconds"].items()},
        "held": line["guarantee"] == "held",
        "waiver": line.get("waiver", ""),
        "notes": [note["text"] for note in line.get("notes", ())],
        "points": _points(line),
    }


def _points(line: Mapping[str, Any]) -> list[list[Any]]:
    """Who was trained: id, optimizer, learning rate, fitness afterwards, and whether the update was kept."""
    return [
        [each["id"], each["optimizer"], _short(each.get("lr")), _short(each.get("after")), bool(each.get("accepted"))]
        for each in line.get("policies", ())
    ]


def _first(size: object) -> int | None:
    """μ of the first generation, where it is known before the run."""
    if isinstance(size, Mapping):
        values = size.get("values")
        size = size.get("first", values[0] if isinstance(values, list) and values else None)
    return _whole(size)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _short(value: float | None) -> float | None:
    """Six digits are enough for a point on a screen, and a thousand of them travel in every generation."""
    known = finite(value)
    return None if known is None else float(f"{known:.6g}")
