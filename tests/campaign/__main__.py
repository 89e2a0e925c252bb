"""`python -m tests.campaign`: attack the library, count what fails."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from tests.campaign import reference
from tests.campaign.runner import Outcome, run
from tests.campaign.schedule import ATTACKS, SECONDS, find, waiting
from tests.campaign.state import State
from tests.campaign.tally import append, tally

HOME = Path(__file__).parents[2]


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if something failed."""
    chosen = _arguments().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # cases under way are ended, too
    root = (chosen.root or HOME / "build" / "campaign").resolve()
    if chosen.case:
        return _again(chosen.case, chosen.seed, root / "single")
    size = "quick" if chosen.quick else chosen.size
    campaign = {"size": size, "seed": chosen.seed, "revision": _revision()}
    state = State(chosen.state or root / "state.jsonl", {**campaign, **({"only": chosen.only} if chosen.only else {})})
    _prepare(root, anew=not state.outcomes)
    attacks = [chosen.only] if chosen.only else list(ATTACKS)
    until = monotonic() + 60 * chosen.minutes
    for outcome in run(waiting(attacks, seed=chosen.seed, size=size, done=state.outcomes), root):
        state.add(outcome)
        _say(outcome)
        if monotonic() > until:
            break
    else:
        state.close()
    section = tally(campaign, state.outcomes.values(), {name: ATTACKS[name].PLAN for name in attacks})
    print(section)
    if not chosen.only:
        append(chosen.tally, section)
    return int(any(outcome.failed for outcome in state.outcomes.values()))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Attack the library, count failures.")
    parser.add_argument("--size", choices=SECONDS, default="full", help="an hour, five minutes, or one")
    parser.add_argument("--quick", action="store_true", help="the same as --size quick")
    parser.add_argument(
        "--minutes", type=float, default=inf, metavar="N", help="tally what was tried until then; the rest can follow"
    )
    parser.add_argument("--only", choices=ATTACKS, help="one attack; its tally is printed, not kept")
    parser.add_argument("--seed", type=int, default=0, help="decides which cases there are, and in which order")
    parser.add_argument("--case", metavar="ATTACK/NUMBER", help="one case again, with all that it says")
    parser.add_argument("--state", type=Path, metavar="FILE", help="outcomes so far [default: in build/campaign]")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="where it happens [default: build/campaign]")
    parser.add_argument("--tally", type=Path, metavar="FILE", default=HOME / "docs" / "reliability.md")
    return parser


def _prepare(root: Path, *, anew: bool) -> None:
    """Import and load what every forked process would load again: torch, and what draws reports.

    A campaign that begins anew compares with references of its own, not with those of earlier sources.
    """
    import torch

    from esgd.report import write_run

    for name in ("reference", "cases") if anew else ():
        shutil.rmtree(root / name, ignore_errors=True)
    torch.set_num_threads(1)
    write_run(reference.finished(root))


def _again(name: str, seed: int, root: Path) -> int:
    named = find(name, seed)
    print(named[1])
    _prepare(root, anew=True)
    (outcome,) = run([named], root)
    _say(outcome)
    return int(outcome.failed is not None)


def _say(outcome: Outcome) -> None:
    what = f"FAILED\n{outcome.failed}" if outcome.failed else outcome.missing or "ok"
    print(f"{outcome.case} {outcome.seconds:.1f} s {what}", flush=True)


def _revision() -> str:
    """Which sources are attacked; those that were changed since are marked."""
    command: list[Any] = ["git", "-C", HOME, "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
