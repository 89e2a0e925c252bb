"""What was tried and what failed, as a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.campaign.runner import Outcome

HEAD = ("| attack | tried | failed | not tried | minutes of two cores |", "|---|--:|--:|--:|--:|")


def tally(campaign: Mapping[str, Any], outcomes: Collection[Outcome], each: Mapping[str, int]) -> str:
    """A section of Markdown: a row per attack, then what failed and what could not be tried, a line each.

    `each` says how many inputs a case of an attack tries.
    """
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.case.partition("/")[0], []).append(outcome)
    rows = [_row(name, group, each[name]) for name, group in groups.items()]
    title = f"### {datetime.now(UTC):%Y-%m-%d}, " + ", ".join(f"{name} {value}" for name, value in campaign.items())
    failed = [f"- `{each.case}` failed: {_first_line(each.failed)}" for each in outcomes if each.failed]
    reasons = sorted({each.missing for each in outcomes if each.missing})
    missing = [f"- not tried: {reason}" for reason in reasons]
    lists = ["", *failed, *missing] if failed or missing else []
    return "\n".join([title, "", *HEAD, *rows, *lists]) + "\n"


def append(path: Path, section: str) -> None:
    """Add a section at the end of a page."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(f"{text.rstrip()}\n\n{section}".lstrip(), encoding="utf-8")


def _row(name: str, outcomes: Collection[Outcome], each: int) -> str:
    missing = sum(outcome.missing is not None for outcome in outcomes)
    failed = sum(outcome.failed is not None for outcome in outcomes)
    minutes = sum(outcome.seconds for outcome in outcomes) / 60 / 2
    return f"| {name} | {each * (len(outcomes) - missing)} | {failed} | {each * missing or ''} | {minutes:.1f} |"


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1 if lines[0].startswith("Traceback") else 0][:200].replace("|", "\\|") if lines else ""
