"""`engine="auto"`: a rule, so that the same command takes the same engine in every run on a machine.

One step of the task is counted, not timed: a second timing differs, and with another engine the bits would. What an
engine costs once, such as starting workers, may be a twentieth of the predicted run, or half of what batching saves.
Populations that shrink are counted with the sizes that they have. Decision 26 has the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import TypeVar

import torch
from torch import nn

from esgd.engines.batched import Vmap
from esgd.engines.compiled_code import compiler_works
from esgd.engines.computing import Computing, cores
from esgd.engines.counting import StepCount, count_step
from esgd.engines.onednn import LARGE, onednn_is_faster
from esgd.engines.probe import trial
from esgd.engines.processes import Pool
from esgd.engines.sequential import Loop
from esgd.protocols import Engine, Load, Setup

SHORT = 200
"""Individual steps of a run below which counting one, which takes four, would be too much."""
ASSUMED_STEPS = 100  # of an epoch whose length is not known

LASTS = 20
"""A run must be predicted to last so many times longer than what an engine costs once."""
LASTS_COMPILED = 30
"""The same of compiled steps: each of its workers waits."""
LASTS_BATCHED, SAVES = 4, 10
"""A batched run must last so many times longer than its workers take to start, because batching saves more than that,
also where all cores are busy; and it must save so many times what recording costs."""
RECORDS, STARTS, COMPILES = 0.01, 2.5, 20.0
"""Seconds until `Vmap` has recorded an operation, until workers have imported torch, until what a population of one
size needs is compiled."""

SMALL = 200_000
"""Parameters below which one thread beats several, and below which networks are batched."""
TINY = 1e-3  # predicted seconds of arithmetic in a step that is too short to be shared by threads …
HEAVIER = 4  # … and so many times fewer if it has heavy operations, which take longer than predicted
FEW_FLOPS = 100e6  # of a step that is batched
HEAVY_OPERATIONS = ("convolution", "mkldnn_rnn_layer", "_cudnn_rnn", "_scaled_dot_product")
"""How operations begin whose batched form is no faster, or is one after another."""
LEAST, CHUNK, CHUNK_ELEMENTS = 4, 32, 8e6
"""Networks in a chunk: at least, at most, and so that a step of the chunk writes so many numbers; but eight may."""
_HEAVY = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)  # layers with more arithmetic than parameters
BATCHED, FEWER, WORTH = 2.0, 0.75, 1.25
"""Times as fast a batched run is taken to be, with fewer networks than the least, and at least for it to be taken."""
FEW_CORES = 2  # that a batched run of one process outruns, also where threads could share a step
BUSY = 0.75  # of the cores, that workers with one thread must use to replace threads
WIDE = 1e9  # flops of a step with convolutions for which the layout matters
PRODUCTS = 3 * LARGE  # flops of a step with linear layers that may have a large product in each of its three passes

_E = TypeVar("_E", Loop, Vmap)


@dataclass(frozen=True)
class EngineChoice:
    """An engine, and one line why."""

    engine: Engine
    why: str


def ruled(setup: Setup, load: Load, computing: Computing) -> EngineChoice:
    """The engine for a run: a function of task, network, load, this machine's cores and devices, and versions."""
    plain = suited_loop(setup.genome.size, computing)
    steps = ceil(load.individual_epochs * (setup.task.steps({}) or ASSUMED_STEPS))
    if steps < SHORT:
        heavy = any(isinstance(layer, _HEAVY) for layer in setup.genome.template.modules())
        short = replace(plain, threads=None) if heavy else plain
        return EngineChoice(short, f"engine: {in_brief(short)}, because the run is short.")
    try:
        step = count_step(setup, plain)
    except Exception:  # noqa: BLE001  # whatever is wrong with the task, the run itself will say it better
        return EngineChoice(plain, "")
    engine = _Rule(setup, load, plain, step).engine(steps * step.seconds)
    counted = f"{step.operations} operations and {step.flops / 1e6:.3g} MFLOP"
    return EngineChoice(engine, f"engine: {in_brief(engine)}, by rule: {steps:,} steps of {counted}.")


@dataclass(frozen=True)
class _Rule:
    """What is known about a run when its engine is chosen."""

    setup: Setup
    load: Load
    plain: Loop
    step: StepCount

    def engine(self, seconds: float) -> Engine:
        """For a run that is predicted to take so many seconds on one core, one network after another."""
        batched = self._batched(seconds)
        if batched is not None:
            return batched
        alone = self._one_thread()
        if self.step.flops >= WIDE and "convolution" in self.step.names:
            alone = self._working(replace(alone, channels_last=True), 1) or alone
        if self._multiplies(alone):
            alone = self._working(replace(alone, onednn=True), 1) or alone
        workers = self._workers(seconds, LASTS)
        if workers and (self.step.arithmetic < TINY or self._used(workers) >= BUSY * _places(alone.device)):
            return Pool(inner=alone, workers=workers)
        return alone if self._tiny else replace(alone, threads=None)

    def _batched(self, seconds: float) -> Vmap | Pool | None:
        """`Vmap`, alone or in a pool, where a step is bound by the number of its operations."""
        if self._heavy or self.setup.genome.size >= SMALL or self.step.flops > FEW_FLOPS:
            return None
        workers = self._workers(seconds / BATCHED, LASTS_BATCHED)
        if self._gain(workers) < WORTH and not self._workers(seconds, LASTS):
            workers = 0  # too few networks for a chunk each, and the run is too short for workers without chunks
        gain = self._gain(workers)
        if gain < WORTH or not (workers or self._tiny or _places(self.plain.device) <= FEW_CORES):
            return None
        if seconds - seconds / gain < SAVES * RECORDS * self.step.operations:
            return None
        one, chunk = self._one_thread(), self._chunk(workers)
        vmap = Vmap(
            device=one.device,
            threads=one.threads,
            precision=one.precision,
            chunk=chunk,
            onednn=self._multiplies(one),
        )
        if not self._working(vmap, chunk):
            return None
        sizes = len({stage.population for stage in self.load.stages})
        if seconds / gain / max(workers, 1) >= LASTS_COMPILED * COMPILES * sizes and compiler_works():
            vmap = replace(vmap, compile=True)
        return Pool(inner=vmap, workers=workers) if workers else vmap

    def _chunk(self, workers: int) -> int:
        """Networks in a chunk: even shares of the population that has most of the work, so that no worker waits for
        another with a chunk more."""
        population = max(self.load.stages, key=lambda stage: stage.population * stage.epochs).population
        share = ceil(population / max(workers, 1))
        most = min(CHUNK, max(8, int(CHUNK_ELEMENTS / max(1, self.step.elements))))
        return ceil(share / ceil(share / most))

    def _gain(self, workers: int) -> float:
        """How many times as fast a batched run is as so many workers that train one network after another."""
        each, chunk, alone, batched = max(workers, 1), self._chunk(workers), 0.0, 0.0
        for stage in self.load.stages:
            together = min(chunk, stage.population)
            turns = ceil(ceil(stage.population / chunk) / each)
            alone += ceil(stage.population / each) * stage.epochs
            batched += turns * together * stage.epochs / (BATCHED if together >= LEAST else FEWER)
        return alone / batched

    @property
    def _heavy(self) -> bool:
        """Whether it has operations whose batched form is no faster, and which take longer than counted."""
        return any(name.startswith(HEAVY_OPERATIONS) for name in self.step.names)

    def _multiplies(self, engine: Loop) -> bool:
        """Whether this machine is slow at the products that its linear layers may have."""
        suited = engine.device == "cpu" and engine.precision == "float32" and self.step.flops >= PRODUCTS
        linear = any(type(layer) is nn.Linear for layer in self.setup.genome.template.modules())
        return suited and linear and onednn_is_faster()

    @property
    def _tiny(self) -> bool:
        """Whether threads could not share a step."""
        return self.step.arithmetic < (TINY / HEAVIER if self._heavy else TINY)

    def _one_thread(self) -> Loop:
        return replace(self.plain, threads=1) if self.plain.device == "cpu" else self.plain

    def _workers(self, seconds: float, lasts: float) -> int:
        """How many workers a run of so many seconds starts; 0 for none."""
        workers = min(_places(self.plain.device), self.load.largest)
        if workers < 2 or seconds < lasts * STARTS:
            return 0
        try:
            Pool(inner=self.plain).check_sendable(self.setup)
        except Exception:  # noqa: BLE001  # such as a task that cannot be pickled
            return 0
        return workers

    def _used(self, workers: int) -> float:
        """How many workers are busy on average."""
        turns = sum(ceil(stage.population / workers) * stage.epochs for stage in self.load.stages)
        return self.load.individual_epochs / turns

    def _working(self, engine: _E, individuals: int) -> _E | None:
        """The engine, if it can train so many: with a layer that it cannot do, it is none."""
        try:
            with trial(engine, self.setup, individuals, batches=1) as train:
                train(2)
        except Exception:  # noqa: BLE001
            return None
        return engine


def _places(device: str) -> int:
    """How many workers this machine has cores or GPUs for."""
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


def in_brief(engine: Engine) -> str:
    """The engine without what is left at its default.

    >>> in_brief(Pool(inner=Vmap(chunk=8, threads=1), workers=2))
    'Pool(inner=Vmap(chunk=8, threads=1), workers=2)'
    """
    shown = [
        (each.name, getattr(engine, each.name))
        for each in fields(engine)  # type: ignore[arg-type]
        if getattr(engine, each.name) != each.default
    ]
    inner = ", ".join(f"{name}={in_brief(value) if name == 'inner' else repr(value)}" for name, value in shown)
    return f"{type(engine).__name__}({inner})"
