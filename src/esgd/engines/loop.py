"""`Loop`: one individual after another in plain PyTorch. This engine is the specification of all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from esgd.engines.computing import Computing, Precision
from esgd.engines.jobs import Bench
from esgd.engines.seat import Begun, Born, Score, Seat
from esgd.engines.stint import Stint, joined
from esgd.engines.walk import SingleWalk, Start
from esgd.engines.workshop import HandedOut, Here
from esgd.genome import Buffers
from esgd.policies import Policy
from esgd.protocols import Rules, Step, Tick, Workshop


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Train and evaluate in this process, one individual at a time, on one device; the fields are `Computing`'s."""

    device: str = "cpu"
    threads: int | None = None
    precision: Precision = "float32"
    compile: bool = False
    channels_last: bool = False

    def __post_init__(self) -> None:
        _ = self.computing  # refuses what cannot be

    @property
    def computing(self) -> Computing:
        return Computing(
            device=self.device,
            threads=self.threads,
            precision=self.precision,
            compile=self.compile,
            channels_last=self.channels_last,
        )

    @property
    def seats(self) -> int:
        return 1

    def groups(self, policies: Sequence[Policy]) -> list[list[int]]:
        """Everybody alone."""
        return [[j] for j in range(len(policies))]

    def bench(self, rules: Rules) -> Bench:
        return SoloBench(Seat(rules, self.computing))

    @contextmanager
    def open(self, rules: Rules, tick: Tick) -> Iterator[Workshop]:
        hands = Here(self.bench(rules), self.threads)
        yield HandedOut(rules, hands, grouping=self.groups, seats=self.seats, tick=tick)


class SoloBench:
    """A bench with one seat."""

    seats = 1

    def __init__(self, seat: Seat) -> None:
        self.seat, self.rules = seat, seat.rules

    def train(self, starts: Sequence[Start], step: Step) -> Stint:
        stints = []
        for start in starts:
            walk = SingleWalk(self.seat, start, step)
            stints.append(walk.outcome(step.backoff(walk, step.epochs)))
        return joined(stints)

    def scores(self, born: Sequence[Born], cutoff: float, begun: Sequence[Begun]) -> list[Score]:
        found = list[Score]()
        for each, parts in zip(born, begun, strict=True):
            self.seat.put(each.row, each.buffers)
            found.append(self.seat.score(cutoff, parts))
        return found

    def calibrated(self, born: Sequence[Born]) -> list[tuple[Buffers, int]]:
        found = list[tuple[Buffers, int]]()
        for each in born:
            self.seat.put(each.row, each.buffers)
            samples = self.seat.calibrate()
            found.append((self.seat.buffers(), samples))
        return found

    def forget_order(self) -> None:
        self.seat.forget_order()
