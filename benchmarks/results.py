"""Results: rows of one shape, collected in one JSON file by every script, section by section."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.children import PEERS, ROOT
from benchmarks.quiet import LIMIT

FOLDER = ROOT / "benchmarks" / "results"
QUICK_FOLDER = ROOT / "runs" / "bench-quick"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured quantity with its spread, and what it should be, if anything was promised.

    `value` is the median over repeats, from `low` to `high`; `at_least` says which side of `target` is the good one.
    `doubt` says why the measurement cannot tell whether the target was reached: others used the machine, or its own
    error is too large. Then there is no verdict, neither a good nor a bad one.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str = "×"
    target: float | None = None
    at_least: bool = True
    doubt: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches the target; None where nothing was promised or nothing can be said."""
        if self.target is None or self.doubt:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def spread(name: str, values: Sequence[float], **rest: Any) -> Row:
    """The row of a quantity that was measured several times."""
    return Row(name=name, value=median(values), low=min(values), high=max(values), **rest)


def save(folder: Path, section: str, part: str, rows: Sequence[Row], **details: Any) -> None:
    """Put one part of a section into results.json; the rest of the file stays."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    share = details.get("busy") or 0.0
    if share > LIMIT:
        rows = [replace(row, doubt=row.doubt or f"others used {share:.0%} of the machine") for row in rows]
    lines = [{**asdict(row), "reached": row.reached} for row in rows]
    known.setdefault(section, {})[part] = {"rows": lines, "measured": machine(), **details}
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in rows:
        print(f"{section} {part}: {row.name}: {in_words(row)}", flush=True)


def in_words(row: Row) -> str:
    """Median, spread and target as a reader wants them."""
    target = "" if row.target is None else f"  {'≥' if row.at_least else '≤'} {row.target:g}: {verdict(row)}"
    span = f" ({row.low:.3g} to {row.high:.3g})" if row.low != row.high else ""
    return f"{row.value:.3g} {row.unit}{span}{target}"


def verdict(row: Row) -> str:
    """Yes, no, or why neither can be said; nothing where nothing was promised."""
    if row.target is None:
        return ""
    return f"unclear: {row.doubt}" if row.doubt else "yes" if row.reached else "no"


def machine() -> dict[str, Any]:
    """What it was measured on: nothing that would tell whose machine it is."""
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def arguments(about: str, extend: Callable[[argparse.ArgumentParser], None] | None = None) -> argparse.Namespace:
    """The options all scripts share; `extend` adds a script's own."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--repeats", type=int, help="how often everything is measured")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", default="", help="parts, separated by commas: W1,W2")
    parser.add_argument("--peers", type=Path, default=PEERS, help="python of the peers' environment")
    if extend:
        extend(parser)
    given = parser.parse_args()
    given.out = given.out or (QUICK_FOLDER if given.quick else FOLDER)
    given.only = tuple(filter(None, given.only.split(",")))
    return given
