"""What was tried and what failed, as a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.campaign.case import Plan
from tests.campaign.runner import Outcome

HEAD = ("| attack | tried | failed | not tried | minutes |", "|---|--:|--:|--:|--:|")
CORES = 2


def tally(campaign: Mapping[str, Any], outcomes: Collection[Outcome], plans: Mapping[str, Plan]) -> str:
    """A section of Markdown: a row per attack, then what failed and why something was not tried, a line each."""
    rows = list[str]()
    for attack, plan in plans.items():
        own = [outcome for outcome in outcomes if outcome.case.partition("/")[0] == attack]
        failed, missing = (sum(bool(getattr(outcome, what)) for outcome in own) for what in ("failed", "missing"))
        tried, planned = plan.each * (len(own) - missing), plan.each * plan.size(campaign["size"])
        minutes = sum(outcome.seconds for outcome in own) / 60 / CORES
        rows.append(f"| {attack} | {tried} | {failed} | {max(0, planned - tried) or ''} | {minutes:.1f} |")
    title = f"### {datetime.now(UTC):%Y-%m-%d}, " + ", ".join(f"{name} {value}" for name, value in campaign.items())
    notes = [f"- `{each.case}` failed: {_first_line(each.failed)}" for each in outcomes if each.failed]
    notes += [f"- not tried: {reason}" for reason in sorted({each.missing for each in outcomes if each.missing})]
    return "\n".join([title, "", *HEAD, *rows, *(["", *notes] if notes else [])]) + "\n"


def append(path: Path, section: str) -> None:
    """Add a section at the end of a page."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(f"{text.rstrip()}\n\n{section}".lstrip(), encoding="utf-8")


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1 if lines[0].startswith("Traceback") else 0][:200].replace("|", "\\|") if lines else ""
