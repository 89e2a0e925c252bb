"""The state of a campaign as lines of JSON: which it is, and the outcomes so far. What was interrupted continues."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.campaign.runner import Outcome


class State:
    """Outcomes in a file. `campaign` tells one campaign from another; a file of another one is refused."""

    def __init__(self, path: Path, campaign: dict[str, Any]) -> None:
        self.path, self.outcomes = path, dict[str, Outcome]()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _lines(path)
        if not lines:
            path.write_text(json.dumps(campaign) + "\n")
        elif lines[0] != campaign:
            raise SystemExit(
                f"{path} is of another campaign: {lines[0]}, not {campaign}. Remove it to begin anew, or name another "
                f"file with --state."
            )
        for line in lines[1:]:
            outcome = Outcome(**line)
            self.outcomes[outcome.case] = outcome

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.outcomes[outcome.case] = outcome
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")

    def close(self) -> None:
        """The campaign is over; the next one begins anew."""
        self.path.unlink()


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines; a last one that is half-written is cut off."""
    if not path.exists():
        return []
    whole, ending, _ = path.read_bytes().rpartition(b"\n")
    path.write_bytes(whole + ending)
    return [json.loads(line) for line in whole.splitlines()]
