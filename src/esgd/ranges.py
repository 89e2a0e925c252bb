"""The range test: which learning rates suit this network and these data. What it finds, and how it searches.

The search asks for one thing only: the training loss after a few steps with a given rate, always from the same network
and on the same batches. Rates are half a decade apart, so that machines whose last bits differ find the same range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Literal

from esgd._text.json_numbers import finite, number

GLANCE, PROBE = 3, 12
"""Steps with a rate: a glance, to see which rates are too high; and a probe, to see which lowers the loss most."""

FIRST, HIGHEST, LEAST = -8, 10, -24
"""In half decades: glances go up from 1e-4 until the loss rises, at most to 1e5; if it rises at once, down to 1e-12."""

HIGHEST_RATE = 1e6
"""No range that is found goes beyond."""

NEAR, FURTHER = 3, 5
"""Probes below the first rate that is too high, and how many more if the lowest of them is the best."""

RISE = 0.02  # by how much the loss must rise within a glance for a rate to be too high, relative to the loss before
FLAT = 0.005  # by how much it must fall within a probe for a rate to have an effect
EXPECTED_STEPS = 80
"""Steps that the test of one optimizer usually takes, looks at the loss included."""

USUAL: Mapping[str, tuple[float, float]] = {"sgd": (0.01, 0.5)}
"""The ranges that suit most networks with scaled data; `USUAL_OF_OTHERS` is that of all other optimizers."""
USUAL_OF_OTHERS = (3e-4, 0.01)

NEAR_USUAL = 10.0
"""A top within this factor of the usual one does not speak against the usual range: it is the best for a few steps."""

Basis = Literal["near", "fastest", "stable", "usual"]
"""Why a range is what it is. "near": the test speaks for the usual one. "fastest": the loss fell most at its top.
"stable": its top is the highest rate that does no harm. "usual": nothing was found."""


@dataclass(frozen=True)
class Probe:
    """The training loss after some steps with a learning rate; inf if it has diverged."""

    rate: float
    steps: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class FoundRange:
    """What the range test of one pool has found.

    | field        | meaning                                                                                |
    |--------------|----------------------------------------------------------------------------------------|
    | `optimizer`  | its name, as in `Policy.optimizer`                                                     |
    | `pool`       | 1, or which of several pools of this optimizer it was found for                        |
    | `low`, `top` | the range                                                                              |
    | `basis`      | "near": the best rate was close to the usual top, so this is the usual range.          |
    |              | "fastest": the loss fell most there. "stable": it fell nowhere, and this is the highest |
    |              | rate at which it did not rise. "usual": every rate diverged; this is the usual range   |
    | `start`      | the loss before any step                                                               |
    | `probes`     | everything that was tried, in this order                                               |
    """

    optimizer: str
    top: float
    basis: Basis
    start: float
    probes: tuple[Probe, ...]
    low: float = 0.0
    pool: int = 1

    @property
    def name(self) -> str:
        """The optimizer, and the number of the pool where it is not the first."""
        return pool_name(self.optimizer, self.pool)

    @property
    def steps(self) -> int:
        """SGD steps that were taken."""
        return sum(probe.steps for probe in self.probes)

    def record(self) -> dict[str, Any]:
        """One JSON object; what is not finite is null."""
        return {
            "optimizer": self.optimizer,
            "low": self.low,
            "top": self.top,
            "basis": self.basis,
            "start": finite(self.start),
            "probes": [[probe.rate, probe.steps, finite(probe.loss)] for probe in self.probes],
            **({"pool": self.pool} if self.pool > 1 else {}),
        }

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> FoundRange:
        """The inverse of `record`."""
        low, top = record["low"], record["top"]
        if not 0 <= low <= top <= HIGHEST_RATE or top == 0:
            raise ValueError(f"from {low!r} to {top!r} is no range of learning rates")
        probes = tuple(Probe(rate, steps, number(loss)) for rate, steps, loss in record["probes"])
        named = {name: record[name] for name in ("optimizer", "low", "top", "basis")}
        return FoundRange(**named, start=number(record["start"]), probes=probes, pool=record.get("pool", 1))


def read_ranges(history: Iterable[Mapping[str, Any]]) -> tuple[FoundRange, ...]:
    """What the lines of a history say was found; of one pool, the last."""
    found = [FoundRange.from_record(each) for line in history for each in line.get("ranges", ())]
    return tuple({each.name: each for each in found}.values())


def pool_name(optimizer: str, number: int) -> str:
    """How a pool is called among those with ranges that are found.

    >>> pool_name("sgd", 1), pool_name("sgd", 2)
    ('sgd', 'sgd 2')
    """
    return optimizer if number == 1 else f"{optimizer} {number}"


def usual_range(optimizer: str) -> tuple[float, float]:
    """The range where nothing speaks for another one.

    >>> usual_range("sgd"), usual_range("adamw")
    ((0.01, 0.5), (0.0003, 0.01))
    """
    return USUAL.get(optimizer, USUAL_OF_OTHERS)


def usual_top(optimizer: str) -> float:
    """The top of that range."""
    return usual_range(optimizer)[1]


def near_usual(found: FoundRange) -> bool:
    """Whether a top is so close to the usual one that a few steps cannot tell which is better for a whole run."""
    return 1 / NEAR_USUAL <= found.top / usual_top(found.optimizer) <= NEAR_USUAL


def rate_at(halves: int) -> float:
    """The rate at so many half decades above 1, to two digits.

    >>> rate_at(-3), rate_at(0), rate_at(1)
    (0.032, 1.0, 3.2)
    """
    return float(f"{10 ** (halves / 2):.1e}")


def search(optimizer: str, start: float, loss_after: Callable[[float, int], float]) -> FoundRange:
    """Find the top of the range; `loss_after(rate, steps)` is the loss from the same start each time."""
    probes, start = list[Probe](), start if isfinite(start) else inf

    def tried(halves: int, steps: int) -> float:
        rate = rate_at(halves)
        loss = loss_after(rate, steps)
        probes.append(Probe(rate, steps, loss if isfinite(loss) else inf))
        return probes[-1].loss

    def found(top: float, basis: Basis) -> FoundRange:
        return FoundRange(optimizer=optimizer, top=top, basis=basis, start=start, probes=tuple(probes))

    if start == inf:
        return found(usual_top(optimizer), "usual")
    too_high = start + RISE * abs(start)
    edge = _edge(lambda halves: tried(halves, GLANCE) > too_high)
    if edge is None:
        return found(usual_top(optimizer), "usual")
    known = dict[int, float]()
    for halves in _downwards(edge, known, flat=lambda loss: abs(loss - start) <= FLAT * abs(start)):
        known[halves] = tried(halves, PROBE)
    best = min(known, key=lambda halves: (known[halves], halves))
    if known[best] < start - FLAT * abs(start):
        return found(rate_at(best), "fastest")
    stable = [halves for halves, loss in known.items() if loss <= start + FLAT * abs(start)]
    return found(rate_at(max(stable)), "stable") if stable else found(usual_top(optimizer), "usual")


def _edge(rises: Callable[[int], bool]) -> int | None:
    """The lowest rate, in half decades, that is too high at a glance; None if all are."""
    for halves in range(FIRST, HIGHEST + 1, 2):
        if rises(halves):
            break
    else:
        return HIGHEST + 1
    if halves > FIRST:
        return halves
    for lower in range(FIRST - 2, LEAST - 1, -2):
        if not rises(lower):
            return lower + 2
    return None


def _downwards(edge: int, known: Mapping[int, float], *, flat: Callable[[float], bool]) -> Iterator[int]:
    """The rates to probe, from just below the edge down: until a lower one is worse than the best, or has no effect."""
    for halves in range(edge - 1, edge - 1 - NEAR - FURTHER, -1):
        yield halves
        lowest = known[halves]
        if len(known) >= NEAR and (flat(lowest) or lowest > min(known.values())):
            return
