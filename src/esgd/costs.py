"""What a recipe says in the paper's notation, and what it will cost on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean
from time import perf_counter
from typing import Any

import torch

from esgd._algorithm.initialization import prepare, rows_at_once, rows_kept
from esgd._algorithm.steps import drawn, sgd_step
from esgd._serialization import encode
from esgd.engines.auto import suited_loop
from esgd.engines.device_memory import device_need
from esgd.engines.probe import epoch_steps, seconds_per_fitness, seconds_per_step
from esgd.engines.sequential import Loop
from esgd.engines.speed import measure_speed
from esgd.policies import Policy
from esgd.protocols import Draw, Engine, Setup, Task, continues
from esgd.recipe import Recipe, Stage
from esgd.run.folder import KEPT_CHECKPOINTS
from esgd.scaling import Workers, generation
from esgd.species.auto import settled_species
from esgd.work import Costs, alike, expected_evaluations, expected_work, measurements, start_looks

PROBE_SECONDS = 0.3
PROBED = 8  # policies: their settings, batch size or dropout, may change what a step takes
ENOUGH = 2.0  # seconds, after which no further policy is measured: a large network takes about as long with any
MATRIX = 1024  # rows and columns of the products that a device's speed is told by


@dataclass(frozen=True)
class Gpus:
    """Devices that a run is to be thought on: how many, what each really does in float32 matrix products, and its
    memory in GB."""

    count: int
    tflops: float
    memory: float = 16.0


def in_symbols(recipe: Recipe) -> dict[str, Any]:
    """The inputs of Algorithm 1 under their letters."""
    return {
        "K": recipe.generations,
        "K_s": _told(recipe, recipe.epochs_of),
        "K_v": recipe.evolution_steps,
        "μ": _told(recipe, recipe.population_of),
        "λ": _told(recipe, recipe.offspring_of),
        "ρ": encode(recipe.mates),
        "m": _told(recipe, recipe.elites_of),
    }


def cost(
    task: Task,
    recipe: Recipe,
    *,
    gpus: Gpus | None = None,
    workers: Workers | None = None,
    share: float = 1.0,
    engine: Engine | None = None,
) -> dict[str, Any]:
    """Epochs, evaluations, memory and, from a short measurement, time: here, on other devices, and on a cluster.

    `share` is how much of the real data the task has. Without an engine, networks are trained one after another.
    """
    setup = prepare(task, recipe, seed=0)
    d, (mu, _) = setup.genome.size, recipe.largest
    counted = alike(recipe)
    looks = start_looks(recipe) + sum(times * _looks(recipe, stage) for times, stage in counted)
    row = d * torch.empty(0, dtype=setup.genome.dtype).element_size()
    stream = setup.seeds.at("probe")
    draws = (Draw(k=1, j=j, generations=recipe.generations, stream=stream) for j in range(min(mu, PROBED)))
    policies = [drawn(settled_species(recipe.species), draw) for draw in draws]

    def measured(engine: Loop) -> tuple[float, float]:
        epoch, evaluation = _measured(setup, engine, policies)
        return epoch / share, evaluation / share

    alone = engine if isinstance(engine, Loop) else suited_loop(d)
    epoch, evaluation = measured(alone)
    sgd_epochs = sum(times * stage.population * stage.sgd_epochs for times, stage in counted)
    in_sequence = seconds = sgd_epochs * epoch + looks * evaluation
    if engine is not None and engine != alone:
        populations = [stage.population for _, stage in counted]
        speed = measure_speed(engine, setup, populations, policies[:2], PROBE_SECONDS)
        steps = fmean(epoch_steps(task, policy) for policy in policies) / share
        seconds = speed.start + speed.looks(start_looks(recipe)) / share
        for times, stage in counted:
            seconds += times * stage.sgd_epochs * steps * speed.step(stage.population)
            seconds += times * speed.looks(_looks(recipe, stage)) / share
    told: dict[str, Any] = {
        "generations": recipe.stage_count,
        "parameters": d,
        "samples": expected_work(Costs.of(task, recipe), recipe) / share,
        "sgd_epochs": sgd_epochs,
        "fitness_evaluations": looks,
        "memory_bytes": rows_at_once(recipe) * (mu + 1) * row,
        "checkpoint_bytes": KEPT_CHECKPOINTS * rows_kept(recipe) * (mu + 1) * row,
        "seconds_per_epoch": epoch,
        "seconds_per_evaluation": evaluation,
        "seconds": seconds,
        "seconds_in_sequence": in_sequence,
    }
    if gpus:
        told |= _elsewhere(in_sequence, mu, gpus)
        told |= _on_device(setup, recipe, policies, gpus)
    if workers:
        epoch, evaluation = measured(Loop(threads=1))
        first = recipe.epochs_of(1)
        individual = first * epoch + measurements(recipe.backoff, first) * evaluation
        told["cluster"] = generation(recipe, row=row, individual=individual, evaluation=evaluation, workers=workers)
    return told


def _looks(recipe: Recipe, stage: Stage) -> int:
    """Fitness passes of a generation."""
    in_sgd = stage.population * measurements(recipe.backoff, stage.sgd_epochs)
    return in_sgd + expected_evaluations(recipe, stage)


def _told(recipe: Recipe, size: Callable[[int], float]) -> float | str:
    """A size, or its first and last value."""
    first, last = size(1), size(recipe.generations)
    return first if not recipe.is_scheduled or first == last else f"{first:g} → {last:g}"


def _elsewhere(seconds: float, individuals: int, gpus: Gpus) -> dict[str, Any]:
    """The same work at the speed of other devices, by the ratio of matrix rates.

    That is the best that can be: it takes their kernels to be as busy as ours, and the individuals spread evenly.
    """
    here = matrix_rate()
    share = ceil(individuals / gpus.count) / individuals  # of the population, on the busiest device
    return {
        "matrix_tflops_here": here / 1e12,
        "gpus": gpus.count,
        "gpu_tflops": gpus.tflops,
        "seconds_on_gpus": seconds * here / (gpus.tflops * 1e12) * share,
    }


def _on_device(setup: Setup, recipe: Recipe, policies: Sequence[Policy], gpus: Gpus) -> dict[str, Any]:
    """What an individual needs there, with the policy that needs most, and how many train at once."""
    keeps = continues(recipe.baggage) or sgd_step(next(recipe.stages()), recipe).keep_ends
    need = max((device_need(setup, each, keeps_ends=keeps) for each in policies), key=lambda need: need.bytes)
    return {
        "gpu_memory": gpus.memory,
        "bytes_on_gpu": need.bytes,
        "activation_bytes": need.activations,
        "individuals_on_gpu": need.fit(int(gpus.memory * 1e9)),
    }


def matrix_rate() -> float:
    """Floating-point operations a second in float32 matrix products, as this process may compute them."""
    a, times = torch.ones(MATRIX, MATRIX), []
    for _ in range(5):
        begun = perf_counter()
        a @ a
        times.append(perf_counter() - begun)
    return 2.0 * MATRIX**3 / min(times)


def _measured(setup: Setup, engine: Loop, policies: Sequence[Policy]) -> tuple[float, float]:
    """Seconds of one epoch of one individual, the mean over some policies, and of one fitness."""
    begun, epochs = perf_counter(), list[float]()
    for policy in policies:
        step = seconds_per_step(engine, setup, 1, 1, PROBE_SECONDS, policy=policy, repeats=1)
        epochs.append(step * epoch_steps(setup.task, policy))
        if perf_counter() - begun > ENOUGH:
            break
    return fmean(epochs), seconds_per_fitness(engine, setup, PROBE_SECONDS)
