"""SIGKILL, at random moments and aimed at every file while it is written; then the same command again.

A kill that is aimed comes before a change that the process makes in the folder. With a power cut, a random part of what
was not forced to the disk until then is lost as well.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from time import sleep

from tests.campaign import judge
from tests.campaign.case import Case, Ground, Plan
from tests.campaign.changes import PowerCut, dying, on_changes
from tests.campaign.scenarios import SCENARIOS, begun, change_at
from tests.campaign.victim import start

PLAN = Plan(full=610, quick=30, suite=2, limit=180.0)


AIMED = {"run": 150, "resume": 80, "mend": 70, "compare": 40, "pool": 15, "ray": 2}
"""At how many of its changes a kill is aimed, evenly; for the first three that is every one."""
CUT = ("run", "resume", "mend")
"""There the power is cut before each of them."""
RANDOM = {"run": 40, "resume": 20, "mend": 10, "compare": 15, "pool": 15, "ray": 3}
"""How many kills come at random moments."""


@dataclass(frozen=True)
class Kill:
    """Kill a command and give it again: at a place among its changes, from 0 to 1, or after some `seconds`.

    `again` has the places at which it is killed the next times.
    """

    scenario: str
    place: float | None = None
    seconds: float = 0.0
    power_cut: bool = False
    again: tuple[float, ...] = ()
    seed: int = 0

    def attack(self, ground: Ground) -> str | None:
        scenario = begun(self.scenario, ground)
        for place in (self.place, *self.again):
            change = None if place is None else change_at(place, self.scenario, ground.root)
            victim = start(*scenario.words, cwd=ground.folder, prepare=partial(self._aim, ground.run, change))
            if change is None:
                sleep(self.seconds)
                victim.signal(signal.SIGKILL)
            ended = victim.wait()
            if ended.code not in (0, -signal.SIGKILL):  # 0: it was quicker
                return str(ended)
        like, lingering = scenario.like(ground.root), scenario.lingering
        return judge.ends_the_same(ground, like, scenario.words, lingering=lingering)

    def _aim(self, run: Path, change: int | None) -> None:
        if change is not None:
            on_changes(run, PowerCut(run, change, self.seed) if self.power_cut else dying(change))


def cases(seed: int) -> Iterator[Case]:
    """Kills of all scenarios, mixed."""
    drawn = random.Random(seed)
    found = list(chain.from_iterable(_of(name, drawn) for name in SCENARIOS))
    drawn.shuffle(found)
    yield from found


def _of(name: str, drawn: random.Random) -> Iterator[Kill]:
    for number in range(AIMED[name]):
        if name == "run" or name not in CUT:
            yield Kill(name, place=number / AIMED[name])
        if name in CUT:
            yield Kill(name, place=number / AIMED[name], power_cut=True, seed=drawn.randrange(1 << 32))
    for _ in range(RANDOM[name]):
        again = tuple(drawn.random() for _ in range(drawn.choice((0, 0, 1, 2)))) if name in CUT else ()
        yield Kill(name, seconds=drawn.uniform(0, SCENARIOS[name].seconds), again=again, seed=drawn.randrange(1 << 32))
