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

from esgd.engines.computing import Computing, available_memory, cores
from esgd.engines.loop import Loop
from esgd.engines.pool import Pool
from esgd.engines.probe import PROBED, seconds_per_step
from esgd.engines.vmap import Vmap
from esgd.protocols import Engine, Load, Rules

SHARE = 0.02
"""Of a run's predicted time that the probe may take."""

STEPS = 6
SHORT = 100 * STEPS  # individual steps: below, even timing the plain engine would be too much
ASSUMED_STEPS = 100  # of an epoch whose length is not known
SMALL = 200_000
"""Parameters below which one thread beats several: the tensors are too small to share."""

WORTHWHILE = 0.85
"""An engine with other last bits, or more processes, must need at most this share of the plain one's time."""

POOL_STARTS = 3.0  # seconds, until workers have imported torch
POOL_EFFICIENCY = 0.85  # of each worker, where it has not been timed
COMPILES = 15.0  # seconds
ROOM = 32
"""A chunk may take so much of the free memory: weights, gradients, momentum, marks, and several workers of it."""


@dataclass(frozen=True)
class Choice:
    """An engine, and one line why."""

    engine: Engine
    why: str


@dataclass(frozen=True)
class Candidate:
    """An engine whose run is predicted to take `seconds`, its start included."""

    engine: Loop | Vmap | Pool
    seconds: float


def fastest(rules: Rules, load: Load, computing: Computing) -> Choice:
    """Time what could be the fastest, and choose."""
    plain = suited_loop(rules.genome.size, computing)
    steps = load.population * load.epochs * (rules.task.steps({}) or ASSUMED_STEPS)
    if steps < SHORT:
        return Choice(plain, f"engine: {_name(plain)}, because the run is too short to time others.")
    one = replace(plain, threads=1) if computing.device == "cpu" else plain
    try:
        reference = Candidate(one, steps * seconds_per_step(one, rules, 1, STEPS))
    except Exception:  # noqa: BLE001  # whatever is wrong with the task, the run itself will say it better
        return Choice(plain, "")
    begun, timed = perf_counter(), [reference]
    for engine, together, cost in _others(one, rules, load, reference.seconds / steps):
        best = min(timed, key=lambda candidate: candidate.seconds)
        if perf_counter() - begun + cost > SHARE * best.seconds:
            continue
        try:
            timed.append(Candidate(engine, cost + steps * seconds_per_step(engine, rules, together, STEPS)))
        except Exception:  # noqa: BLE001  # no compiler, a layer that cannot be batched: then it is not a candidate
            continue
    timed += _pools(timed, rules, load, steps, begun)
    best = min(timed, key=lambda candidate: candidate.seconds)
    chosen = best if best.seconds <= WORTHWHILE * reference.seconds else reference
    return Choice(chosen.engine, _why(chosen, reference, len(timed), perf_counter() - begun))


def _others(one: Loop, rules: Rules, load: Load, step: float) -> Iterator[tuple[Loop | Vmap, int, float]]:
    """Candidates in this process, how many individuals to time them with, and roughly what that costs."""
    once = 2 * STEPS * step
    if one.device == "cpu" and cores() > 1 and rules.genome.size >= SMALL // 10:
        yield replace(one, threads=cores()), 1, once
    if any(isinstance(layer, nn.Conv2d) for layer in rules.genome.template.modules()):
        yield replace(one, channels_last=True), 1, once
    vmap = Vmap(device=one.device, threads=one.threads, precision=one.precision)
    share = ceil(load.population / _workers(one.device))
    sizes = (8, 32, 128) if one.device == "cpu" else (32, 128, 512)  # too large for a GPU: that fails here
    row = rules.genome.size * rules.genome.dtype.itemsize
    room = available_memory() / (ROOM * row) if one.device == "cpu" else inf
    chunks = sorted(chunk for chunk in {min(share, size) for size in sizes} if 1 < chunk <= room)
    for chunk in chunks:
        yield replace(vmap, chunk=chunk), chunk, 1.0 + chunk * once
    for chunk in chunks[-2:]:
        yield replace(vmap, chunk=chunk, compile=True), chunk, COMPILES
    yield replace(one, compile=True), 1, COMPILES


def _pools(timed: list[Candidate], rules: Rules, load: Load, steps: int, begun: float) -> Iterator[Candidate]:
    """The two fastest engines that leave other cores alone, each in a pool: timed if that is cheap, else predicted."""
    inners = [
        (each.seconds, each.engine)
        for each in timed
        if not isinstance(each.engine, Pool) and (each.engine.threads == 1 or each.engine.device != "cpu")
    ]
    for alone, inner in sorted(inners, key=lambda pair: pair[0])[:2]:
        workers = min(_workers(inner.device), load.population)
        if workers < 2:
            return
        pool, groups = Pool(inner=inner, workers=workers), len(inner.groups([PROBED] * load.population))
        busiest = ceil(groups / workers) / groups  # the share of the groups that the busiest worker has
        seconds = POOL_STARTS + alone * busiest / POOL_EFFICIENCY
        cost = POOL_STARTS + seconds / steps * 2 * STEPS * load.population
        try:
            if perf_counter() - begun + cost < SHARE * seconds:
                together = min(load.population, 2 * workers * ceil(load.population / groups))
                seconds = POOL_STARTS + steps * seconds_per_step(pool, rules, together, STEPS)
            else:
                pool.check_sendable(rules)
        except Exception:  # noqa: BLE001  # such as a task that cannot be pickled
            continue
        yield Candidate(pool, seconds)


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


def _why(chosen: Candidate, reference: Candidate, timed: int, took: float) -> str:
    ratio = reference.seconds / chosen.seconds
    if chosen is reference:
        return f"engine: {_name(chosen.engine)}, the fastest of {timed} for this network (probe {took:.1f} s)."
    return (
        f"engine: {_name(chosen.engine)}, {ratio:.1f} × as fast as one network after another on one core "
        f"(probe {took:.1f} s)."
    )


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
