"""The smallest slice of the campaign, and the tool itself: a case that hangs or raises has failed, nothing is lost."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep

import pytest

from tests.campaign.case import Ground, Plan, Unavailable, python_path
from tests.campaign.runner import Outcome, run
from tests.campaign.schedule import find, waiting
from tests.campaign.state import State
from tests.campaign.tally import append, tally
from tests.warm import python

HOME = Path(__file__).parents[2]
CAMPAIGN = {"size": "suite", "seed": 0, "revision": "abc"}
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes and mounts are attacked as Linux has them"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning"),
]


@dataclass(frozen=True)
class Scripted:
    """A case that does what it is told."""

    how: str

    def attack(self, ground: Ground) -> str | None:
        match self.how:
            case "hang":
                if os.fork() == 0:
                    os.setsid()
                    (ground.root / "below").write_text(str(os.getpid()))
                    sleep(600)
                sleep(600)
            case "raise":
                raise ValueError("a defect")
            case "unavailable":
                raise Unavailable("no such thing here")
            case "die":
                os._exit(9)
        return None if self.how == "fine" else "it is wrong"


def outcomes(tmp_path: Path, *ways: str, limit: float = 60.0) -> dict[str, Outcome]:
    cases = [(f"scripted/{number}", Scripted(how), limit) for number, how in enumerate(ways)]
    return {ways[int(each.case.partition("/")[2])]: each for each in run(cases, tmp_path)}


def test_outcomes_say_what_happened_and_only_failures_are_kept(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "fine", "wrong", "raise", "unavailable", "die")
    assert found["fine"].failed is None
    assert found["wrong"].failed == "it is wrong"
    assert "ValueError: a defect" in (found["raise"].failed or "")
    assert (found["unavailable"].failed, found["unavailable"].missing) == (None, "no such thing here")
    assert found["die"].failed == "it ended with 9"
    assert sorted(path.name for path in (tmp_path / "cases").iterdir()) == ["scripted-1", "scripted-2", "scripted-4"]


@pytest.mark.slow
def test_a_case_that_hangs_is_ended_with_all_that_it_began(tmp_path: Path) -> None:
    assert "it hangs" in (outcomes(tmp_path, "hang", limit=2.0)["hang"].failed or "")
    assert (
        not Path(f"/proc/{(tmp_path / 'below').read_text()}/cmdline").exists()
        or not Path(f"/proc/{(tmp_path / 'below').read_text()}/cmdline").read_text()
    )


def test_an_interrupted_campaign_continues(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    State(path, CAMPAIGN).add(Outcome("kills/0", seconds=1.0))
    with path.open("a") as file:
        file.write('{"case": "kills/1", "fai')
    assert list(State(path, CAMPAIGN).outcomes) == ["kills/0"]
    with pytest.raises(SystemExit, match="is of another campaign"):
        State(path, {**CAMPAIGN, "seed": 1})


def test_a_tally_counts_by_attack_and_is_appended(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    plan = Plan(full=9, quick=4, suite=2, limit=60.0)
    tried = [Outcome("kills/0"), Outcome("kills/1", failed="a | b\nmore"), Outcome("disk/0", missing="no mounts")]
    append(page, tally(CAMPAIGN, tried, {"kills": plan, "disk": replace(plan, each=50)}))
    words = page.read_text()
    assert words.startswith("# Page\n\n### ")
    assert "| kills | 2 | 1 |  | 0.0 |" in words
    assert "| disk | 0 | 0 | 100 | 0.0 |" in words
    assert "- `kills/1` failed: a \\| b\n" in words
    assert "- not tried: no mounts" in words


def test_cases_are_found_again_by_their_names_and_attacks_take_turns() -> None:
    named = list(waiting(["kills", "disk"], seed=3, size="suite", done=["disk/0"]))
    assert [name for name, _, _ in named[:3]] == ["kills/0", "kills/1", "disk/1"]
    for each in named:
        assert find(each[0], seed=3) == each


@pytest.mark.slow
def test_the_smallest_slice_finds_nothing(tmp_path: Path) -> None:
    words = ["--size", "suite", "--root", str(tmp_path), "--tally", str(tmp_path / "tally.md")]
    done = python("-m", "tests.campaign", *words, cwd=HOME, env={**os.environ, "PYTHONPATH": python_path()})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kills |" in (tmp_path / "tally.md").read_text()
