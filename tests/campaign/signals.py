"""Signals that are not SIGKILL, at random moments; workers that die; several processes that want the same run.

Expected: an interrupted command says so and ends; a paused one, or one whose worker died, ends as if nothing had been;
of several at once one has the folder, and the others are refused. The same command again gives the undisturbed result.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from time import sleep

from tests.campaign import judge
from tests.campaign.case import Case, Ground, Plan
from tests.campaign.changes import Change, on_changes
from tests.campaign.isolation import descendants
from tests.campaign.scenarios import SCENARIOS, begun, changes_of
from tests.campaign.victim import esgd, start, wait_until

PLAN = Plan(full=196, quick=12, suite=1, limit=180.0)

INTERRUPTED, TERMINATED, HUNG_UP = 130, 143, 129
ENDS = {
    "SIGINT": (0, INTERRUPTED, -signal.SIGINT),
    "SIGTERM": (0, TERMINATED, -signal.SIGTERM),
    "SIGHUP": (0, HUNG_UP, -signal.SIGHUP),
}
"""How a command ends that gets a signal; 0: it was quicker."""
BUSY = "is being written by another process"


@dataclass(frozen=True)
class Interrupt:
    """Send a signal after some seconds; `twice`, as an impatient person does."""

    scenario: str
    signal: str
    seconds: float
    twice: bool = False

    def attack(self, ground: Ground) -> str | None:
        scenario = begun(self.scenario, ground)
        victim = start(*scenario.words, cwd=ground.folder)
        for pause in (self.seconds, 0.05)[: 1 + self.twice]:
            sleep(pause)
            victim.signal(signal.Signals[self.signal])
        ended = victim.wait()
        if ended.code not in ENDS[self.signal] or judge.unclean(ended):
            return str(ended)
        return judge.ends_the_same(ground, scenario.like(ground.root), scenario.words)


@dataclass(frozen=True)
class Pause:
    """Stop a command and let it go on, some times, after so many seconds each."""

    scenario: str
    seconds: tuple[float, ...]

    def attack(self, ground: Ground) -> str | None:
        scenario = begun(self.scenario, ground)
        victim = start(*scenario.words, cwd=ground.folder)
        for pause in self.seconds:
            sleep(pause)
            victim.signal(signal.SIGSTOP)
            sleep(pause)
            victim.signal(signal.SIGCONT)
        ended = victim.wait()
        if ended.code != 0 or judge.unclean(ended):
            return str(ended)
        return judge.is_same(ground, scenario.like(ground.root)) or judge.left_over(ground)


@dataclass(frozen=True)
class Bereaved:
    """Kill a process that the command has begun, after some seconds: another one does its work."""

    scenario: str
    seconds: float
    seed: int

    def attack(self, ground: Ground) -> str | None:
        scenario = begun(self.scenario, ground)
        victim = start(*scenario.words, cwd=ground.folder)
        sleep(self.seconds)
        below = sorted(descendants(victim.pid))
        if below:
            os.kill(random.Random(self.seed).choice(below), signal.SIGKILL)
        ended = victim.wait()
        if ended.code != 0 or judge.unclean(ended):
            return str(ended)
        return judge.is_same(ground, scenario.like(ground.root)) or judge.left_over(ground)


@dataclass(frozen=True)
class Rivals:
    """Give a command while the first one is in the midst of its changes, at a place from 0 to 1."""

    scenario: str
    place: float

    def attack(self, ground: Ground) -> str | None:
        scenario = begun(self.scenario, ground)
        made = changes_of(self.scenario, ground.root)
        number, locked = int(self.place * len(made)), max(k for k, line in enumerate(made) if line.endswith(" .lock"))

        def wait_there(change: Change) -> None:
            if change.number == number:
                os.kill(os.getpid(), signal.SIGSTOP)

        first = start(*scenario.words, cwd=ground.folder, prepare=lambda: on_changes(ground.run, wait_there))
        if not wait_until(lambda: first.stopped or first.ended, seconds=60):
            return "it neither waits nor ends"
        rivals = [esgd(*scenario.words, cwd=ground.folder) for _ in range(2)]
        first.signal(signal.SIGCONT)
        for each in (*rivals, first.wait()):
            refused = number > locked and each in rivals
            if each.code != (3 if refused else 0) or (BUSY in each.said) != refused or judge.unclean(each):
                return str(each)
        return judge.is_same(ground, scenario.like(ground.root)) or judge.left_over(ground)


@dataclass(frozen=True)
class Race:
    """Give a command several times at once: one succeeds at least, and the rest are refused."""

    scenario: str
    processes: int

    def attack(self, ground: Ground) -> str | None:
        scenario = begun(self.scenario, ground)
        racing = [start(*scenario.words, cwd=ground.folder) for _ in range(self.processes)]
        ends = [each.wait() for each in racing]
        for each in ends:
            if (each.code != 0 and not (each.code == 3 and BUSY in each.said)) or judge.unclean(each):
                return str(each)
        if all(each.code != 0 for each in ends):
            return f"none succeeded; {ends[0]}"
        return judge.is_same(ground, scenario.like(ground.root)) or judge.left_over(ground)


def cases(seed: int) -> Iterator[Case]:
    """Signals of all kinds, mixed."""
    drawn = random.Random(seed)
    found = [*_interrupts(drawn), *_pauses(drawn), *_rivals()]
    drawn.shuffle(found)
    yield from found


def _interrupts(drawn: random.Random) -> Iterator[Case]:
    for scenario, count in {"run": 45, "resume": 15, "mend": 10, "compare": 10, "pool": 20, "ray": 3}.items():
        for _ in range(count):
            moment = drawn.uniform(0, SCENARIOS[scenario].seconds)
            yield Interrupt(scenario, drawn.choice(sorted(ENDS)), moment, twice=drawn.random() < 0.3)


def _pauses(drawn: random.Random) -> Iterator[Case]:
    for scenario, count in {"run": 10, "pool": 5}.items():
        for _ in range(count):
            yield Pause(scenario, tuple(drawn.uniform(0, SCENARIOS[scenario].seconds / 3) for _ in range(3)))
    for _ in range(12):
        yield Bereaved("pool", drawn.uniform(0, SCENARIOS["pool"].seconds), drawn.randrange(1 << 32))


def _rivals() -> Iterator[Case]:
    for scenario in ("run", "resume", "mend"):
        for number in range(20):
            yield Rivals(scenario, number / 20)
        for processes in (2, 4):
            yield Race(scenario, processes)
