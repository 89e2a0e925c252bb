"""What a recipe says in the paper's notation, and what it will cost on this machine."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from esgd.beginning import prepare
from esgd.engines.auto import suited_loop
from esgd.engines.computing import torch_threads
from esgd.engines.seat import Seat
from esgd.engines.walk import build_optimizer
from esgd.policies import Policy
from esgd.protocols import BackOff, Rules, Task
from esgd.recipe import Recipe
from esgd.spelling import encode

PROBE_SECONDS = 0.5


def in_symbols(recipe: Recipe) -> dict[str, Any]:
    """The inputs of Algorithm 1 under their letters."""
    return {
        "K": recipe.generations,
        "K_s": recipe.sgd_epochs,
        "K_v": recipe.evolution_steps,
        "μ": recipe.population,
        "λ": recipe.offspring_count,
        "ρ": encode(recipe.mates),
        "m": recipe.elite_count,
    }


def cost(task: Task, recipe: Recipe) -> dict[str, Any]:
    """Epochs, evaluations, memory and, from a short measurement, time."""
    rules = prepare(task, recipe, seed=0)
    mu, d = recipe.population, rules.genome.size
    evaluations = sum(stage.evolution_steps * recipe.offspring_count for stage in recipe.stages())
    checks = sum(_measurements(recipe.backoff, stage.sgd_epochs) for stage in recipe.stages()) * mu
    row = d * torch.empty(0, dtype=rules.genome.dtype).element_size()
    epoch, evaluation = _measured(rules)
    sgd_epochs = mu * recipe.total_epochs
    return {
        "parameters": d,
        "sgd_epochs": sgd_epochs,
        "fitness_evaluations": mu + checks + evaluations,
        "memory_bytes": 2 * (mu + 1) * row,
        "checkpoint_bytes": 2 * (mu + 1) * row,
        "seconds_per_epoch": epoch,
        "seconds_per_evaluation": evaluation,
        "seconds": sgd_epochs * epoch + (mu + checks + evaluations) * evaluation,
    }


class _Rehearsal:
    """A walk that goes nowhere and counts how often its fitness is asked for."""

    def __init__(self) -> None:
        self.measured = 0
        self.fitness, self.rows = torch.zeros(1, dtype=torch.float64), torch.zeros(1, 1)

    def epoch(self) -> None: ...

    def measure(self) -> Tensor:
        self.measured += 1
        return self.fitness

    def mark(self) -> None: ...

    def restore(self, mark: None, where: Tensor) -> None: ...

    def place(self, rows: Tensor) -> None: ...

    def coin(self, number: int) -> Tensor:
        return torch.zeros(1, dtype=torch.float64)


def _measurements(backoff: BackOff, epochs: int) -> int:
    """Fitness passes of one SGD step, found by rehearsing it."""
    walk = _Rehearsal()
    backoff(walk, epochs)
    return walk.measured


def _measured(rules: Rules) -> tuple[float, float]:
    """Seconds of one epoch of one individual, and of one fitness, from half a second of real steps each."""
    engine = suited_loop(rules.genome.size)
    seat = Seat(rules, engine.computing)
    seat.put(*rules.genome.read(rules.genome.template))
    task, settings = rules.task, dict[str, Any]()
    optimizer = build_optimizer(seat.parameters, Policy(optimizer="sgd", hyper={"lr": 0.0}))
    with torch_threads(engine.threads):
        seat.score()
        begun = perf_counter()
        seat.score()
        evaluation = perf_counter() - begun
        done, begun = 0, perf_counter()
        seat.module.train()
        for batch in task.batches(rules.seeds.at("probe"), settings):
            optimizer.zero_grad(set_to_none=True)
            task.loss(seat.module, seat.computing.to_device(batch)).backward()
            optimizer.step()
            done += 1
            if perf_counter() - begun > PROBE_SECONDS:
                break
        step = (perf_counter() - begun) / done
    return step * (task.steps(settings) or done), evaluation
