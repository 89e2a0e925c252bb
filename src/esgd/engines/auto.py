"""`engine="auto"`: time a few real steps of each engine that could be the fastest here, and take that one.

The probe may cost 2% of the run. What does not fit into that is not timed: a short run takes the plain engine, a longer
one the candidates in the order below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import ceil, inf
from time import perf_counter

import torch
from torch import nn

from esgd.engines.batched import Vmap
from esgd.engines.computing import Computing, cores
from esgd.engines.probe import LASTING, PROBED, WARM, seconds_per_step
from esgd.engines.processes import Pool
from esgd.engines.sequential import Loop
from esgd.limits import available_memory
from esgd.protocols import Engine, Load, Rules

SHARE = 0.02
"""Of a run's predicted time that the probe may take."""

TIMINGS = 16
"""A timing may take so small a part of the probe: there are about eight candidates, and each is timed twice."""

STEPS = 6
SHORT = 100 * STEPS  # individual steps: below, even timing the plain engine would be too much
ASSUMED_STEPS = 100  # of an epoch whose length is not known
SMALL = 200_000
"""Parameters below which one thread beats several: the tensors are too small to share."""

WORTHWHILE = 0.85
"""An engine with other last bits, or more processes, must need at most this share of the plain one's time."""

LONGER, CLOSE = 8, 1.3
"""Candidates this close, as a ratio, are looked at for so many times longer."""

TOGETHER = 1.2
"""Several threads wait for one another whenever anything else runs: their best stint flatters them by so much."""

RECORDS = 1.0  # seconds, until `Vmap` has recorded a step
POOL_STARTS = 2.0  # seconds, until workers have imported torch
POOL_EFFICIENCY = 0.85  # of each worker, where it has not been timed
COMPILES = 15.0  # seconds
ROOM = 32
"""A chunk may take so much of the free memory: weights, gradients, momentum, snapshots, and several workers of it."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine, and one line why."""

    engine: Engine
    why: str


@dataclass(frozen=True)
class Candidate:
    """An engine that trains `together` individuals at once, needs `start` seconds before it does, then `step` seconds
    for each of a run's steps."""

    engine: Loop | Vmap | Pool
    together: int
    start: float
    step: float


class Probe:
    """Times engines on a run of so many steps of one individual, as long as it may."""

    def __init__(self, rules: Rules, steps: int, plain: Loop) -> None:
        self.rules, self.steps, self.threads, self.begun = rules, steps, plain.threads, perf_counter()
        self.plain = Candidate(plain, 1, 0.0, seconds_per_step(plain, rules, 1, STEPS, lasting=0.0))
        self.candidates = [self.plain]
        self.lasting = min(LASTING, SHARE * self.seconds(self.plain) / TIMINGS)

    def seconds(self, candidate: Candidate) -> float:
        """Of the whole run."""
        return candidate.start + self.steps * candidate.step

    @property
    def best(self) -> Candidate:
        return min(self.candidates, key=self.seconds)

    def may(self, cost: float) -> bool:
        """Whether so many seconds are still within the probe's share of the run."""
        return perf_counter() - self.begun + cost <= SHARE * self.seconds(self.best)

    def look(self, engine: Loop | Vmap, together: int, start: float) -> None:
        """Time an engine, if that fits."""
        if self.may(start + WARM * STEPS * together * self.plain.step + 2 * self.lasting):
            try:
                step = seconds_per_step(engine, self.rules, together, STEPS, self.lasting)
            except Exception:  # noqa: BLE001  # no compiler, a layer that cannot be batched: then it is no candidate
                return
            flattered = TOGETHER if engine.threads != self.threads else 1.0
            self.candidates.append(Candidate(engine, together, start, step * flattered))

    def look_at_compiled(self) -> None:
        """The two fastest chunks, and the plain engine, compiled."""
        batched = [(each, each.engine) for each in self.candidates if isinstance(each.engine, Vmap)]
        for each, vmap in sorted(batched, key=lambda pair: pair[0].step)[:2]:
            self.look(replace(vmap, compile=True), each.together, COMPILES)
        if isinstance(self.plain.engine, Loop):
            self.look(replace(self.plain.engine, compile=True), 1, COMPILES)

    def look_at_pools(self, population: int) -> None:
        """The two fastest engines that leave other cores alone, each in a pool: timed if that fits, else predicted."""
        inners = [
            (each, each.engine)
            for each in sorted(self.candidates, key=self.seconds)
            if not isinstance(each.engine, Pool) and (each.engine.threads == 1 or each.engine.device != "cpu")
        ]
        for each, inner in inners[:2]:
            workers = min(_workers(inner.device), population)
            if workers < 2:
                return
            pool, groups = Pool(inner=inner, workers=workers), len(inner.groups([PROBED] * population))
            busiest = ceil(groups / workers) / groups  # the share of the groups that the busiest worker has
            step, start = each.step * busiest / POOL_EFFICIENCY, POOL_STARTS + each.start
            together = min(population, 2 * workers * ceil(population / groups))
            try:
                if self.may(start + WARM * STEPS * together * step + 2 * self.lasting):
                    step = seconds_per_step(pool, self.rules, together, STEPS, self.lasting)
                else:
                    pool.check_sendable(self.rules)
            except Exception:  # noqa: BLE001  # such as a task that cannot be pickled
                continue
            self.candidates.append(Candidate(pool, together, start, step))

    def decide(self) -> Candidate:
        """The fastest; where two are close, after a longer look at both."""
        first, *others = sorted(self.candidates, key=self.seconds)
        close = [each for each in others[:1] if self.seconds(each) < CLOSE * self.seconds(first)]
        finalists, steps = [first, *close], LONGER * STEPS
        cost = sum(each.start + WARM * steps * each.together * each.step + 2 * self.lasting for each in finalists)
        if close and self.may(cost):
            self.candidates = [
                replace(each, step=seconds_per_step(each.engine, self.rules, each.together, steps))
                for each in finalists
            ]
        best = self.best
        return best if self.seconds(best) <= WORTHWHILE * self.seconds(self.plain) else self.plain


def fastest(rules: Rules, load: Load, computing: Computing) -> EngineChoice:
    """Time what could be the fastest, and choose."""
    plain = suited_loop(rules.genome.size, computing)
    steps = load.population * load.epochs * (rules.task.steps({}) or ASSUMED_STEPS)
    if steps < SHORT:
        return EngineChoice(plain, f"engine: {_name(plain)}, because the run is too short to time others.")
    one = replace(plain, threads=1) if computing.device == "cpu" else plain
    try:
        probe = Probe(rules, steps, one)
    except Exception:  # noqa: BLE001  # whatever is wrong with the task, the run itself will say it better
        return EngineChoice(plain, "")
    for engine, together, start in _others(one, rules, load.population):
        probe.look(engine, together, start)
    probe.look_at_compiled()
    probe.look_at_pools(load.population)
    chosen = probe.decide()
    return EngineChoice(chosen.engine, _why(chosen, probe))


def _others(one: Loop, rules: Rules, population: int) -> Iterator[tuple[Loop | Vmap, int, float]]:
    """Candidates in this process, how many individuals they train at once, and seconds until the first step."""
    if one.device == "cpu" and cores() > 1 and rules.genome.size >= SMALL // 10:
        yield replace(one, threads=cores()), 1, 0.0
    if any(isinstance(layer, nn.Conv2d) for layer in rules.genome.template.modules()):
        yield replace(one, channels_last=True), 1, 0.0
    vmap = Vmap(device=one.device, threads=one.threads, precision=one.precision)
    share = ceil(population / _workers(one.device))
    sizes = (8, 16, 32, 128) if one.device == "cpu" else (32, 128, 512)  # too large for a GPU: that fails here
    row = rules.genome.size * rules.genome.dtype.itemsize
    room = available_memory() / (ROOM * row) if one.device == "cpu" else inf
    even = {ceil(share / ceil(share / size)) for size in sizes}  # nobody waits for a worker with a chunk more
    chunks = sorted(chunk for chunk in even if 1 < chunk <= room)
    for chunk in chunks:
        yield replace(vmap, chunk=chunk), chunk, RECORDS


def _workers(device: str) -> int:
    return torch.cuda.device_count() if device == "cuda" else cores() if device == "cpu" else 1


def suited_loop(parameters: int, computing: Computing | None = None) -> Loop:
    """The plain engine with as many threads as the network can use.

    >>> suited_loop(4_810).threads
    1
    """
    computing = computing or Computing(device=default_device())
    threads = 1 if computing.device == "cpu" and parameters < SMALL else None
    return Loop(device=computing.device, threads=computing.threads or threads, precision=computing.precision)


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _why(chosen: Candidate, probe: Probe) -> str:
    took, name = f"(probe {perf_counter() - probe.begun:.1f} s)", _name(chosen.engine)
    if chosen is probe.plain:
        return f"engine: {name}, the fastest of {len(probe.candidates)} for this network {took}."
    ratio = probe.seconds(probe.plain) / probe.seconds(chosen)
    return f"engine: {name}, {ratio:.1f} × as fast as one network after another on one core {took}."


def _name(engine: Engine) -> str:
    """The engine without what is left at its default.

    >>> _name(Pool(inner=Vmap(chunk=8, threads=1), workers=2))
    'Pool(inner=Vmap(chunk=8, threads=1), workers=2)'
    """
    shown = [
        (each.name, getattr(engine, each.name))
        for each in fields(engine)  # type: ignore[arg-type]
        if getattr(engine, each.name) != each.default
    ]
    inner = ", ".join(f"{name}={_name(value) if name == 'inner' else repr(value)}" for name, value in shown)
    return f"{type(engine).__name__}({inner})"
