"""`python -m tests.campaign`: attack the library, count what fails."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.campaign import damage, disk, injection, kills, page, reference, signals
from tests.campaign.case import Attack, Case
from tests.campaign.runner import Outcome, run
from tests.campaign.state import State
from tests.campaign.tally import append, tally

HOME = Path(__file__).parents[2]
ATTACKS: Mapping[str, Attack] = {
    "kills": kills,
    "signals": signals,
    "disk": disk,
    "damage": damage,
    "page": page,
    "injection": injection,
}
SIZES = ("full", "quick", "suite")


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if something failed."""
    chosen = _arguments().parse_args(words)
    root = (chosen.root or HOME / "build" / "campaign").resolve()
    _warm(root)
    if chosen.case:
        return _single(chosen.case, chosen.seed, root)
    size = "quick" if chosen.quick else chosen.size
    campaign = {"size": size, "seed": chosen.seed, "revision": _revision()}
    state = State(chosen.state or root / "state.jsonl", {**campaign, **({"only": chosen.only} if chosen.only else {})})
    for outcome in run(_waiting(chosen.only, chosen.seed, size, state), root):
        state.add(outcome)
        _say(outcome)
    section = tally(campaign, state.outcomes.values(), {name: attack.PLAN.each for name, attack in ATTACKS.items()})
    print(section)
    if not chosen.only:
        append(chosen.tally, section)
    state.close()
    return int(any(outcome.failed for outcome in state.outcomes.values()))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Attack the library, count failures.")
    parser.add_argument("--size", choices=SIZES, default=SIZES[0], help="an hour, five minutes, or one")
    parser.add_argument("--quick", action="store_true", help="the same as --size quick")
    parser.add_argument("--only", choices=ATTACKS, help="one attack; its tally is printed, not kept")
    parser.add_argument("--seed", type=int, default=0, help="decides which cases there are, and in which order")
    parser.add_argument("--case", metavar="ATTACK/NUMBER", help="one case again, with all that it says")
    parser.add_argument("--state", type=Path, metavar="FILE", help="outcomes so far [default: in build/campaign]")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="where it happens [default: build/campaign]")
    parser.add_argument("--tally", type=Path, metavar="FILE", default=HOME / "docs" / "reliability.md")
    return parser


def _warm(root: Path) -> None:
    """Import and load what every forked process would load again: here, torch and what draws reports."""
    import torch

    from esgd.report import write_run

    torch.set_num_threads(1)
    write_run(reference.finished(root))


def _waiting(only: str | None, seed: int, size: str, state: State) -> Iterator[tuple[str, Case, float]]:
    """The cases that have no outcome yet, under names by which they are found again."""
    for attack in [only] if only else ATTACKS:
        module = ATTACKS[attack]
        for number, case in enumerate(islice(module.cases(seed), module.PLAN.size(size))):
            if f"{attack}/{number}" not in state.outcomes:
                yield f"{attack}/{number}", case, module.PLAN.limit


def _single(name: str, seed: int, root: Path) -> int:
    attack, _, number = name.partition("/")
    if attack not in ATTACKS or not number.isdecimal():
        raise SystemExit(f"{name!r} is no case. Cases are called ATTACK/NUMBER; attacks are {', '.join(ATTACKS)}.")
    case = next(islice(ATTACKS[attack].cases(seed), int(number), None), None)
    if case is None:
        raise SystemExit(f"{name!r}: there are not so many cases of {attack}.")
    print(case)
    (outcome,) = run([(name, case, ATTACKS[attack].PLAN.limit)], root)
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
