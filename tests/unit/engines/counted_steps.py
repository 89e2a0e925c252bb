"""What an engine asks of a device in an SGD step and in a fitness: a script that prints its counts as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd import Loop, Vmap
from esgd._algorithm.initialization import prepare
from esgd._tensors.averages import IterateAverage
from esgd.engines.batched.sgd import BatchedTrajectory
from esgd.operators import RandomStart
from esgd.operators.anchor import Anchor
from esgd.policies import Policy
from esgd.population import Birth
from esgd.protocols import Engine, Setup, Step, Trajectory
from esgd.schedules import Cosine
from esgd.tasks import Supervised
from esgd.tasks.objectives import OfOutput
from esgd.testing import check_engine
from esgd.testing.miniature import RECIPE, SEED, dropping, miniature, normalised, perceptron
from tests.counted_device import COUNTS, DEVICE, counted_device

POLICIES = {
    "sgd": Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "scheduled sgd": Policy(optimizer="sgd", hyper={"lr": 0.1, "weight_decay": 0.01}, schedule=Cosine()),
    "clipped adamw": Policy(optimizer="adamw", hyper={"lr": 0.003}, clip_norm=0.1, schedule=Cosine()),
    "rmsprop": Policy(optimizer="rmsprop", hyper={"lr": 0.003}),
}
NETWORKS = {"perceptron": perceptron, "BatchNorm": normalised, "dropout": dropping}
ENGINES: dict[str, Engine] = {"Loop": Loop(device=DEVICE), "Vmap": Vmap(device=DEVICE, chunk=2)}
CASES = (("perceptron", "clipped adamw"), ("perceptron", "rmsprop"), ("BatchNorm", "scheduled sgd"), ("dropout", "sgd"))
STEPS = 3  # of an epoch
INDIVIDUALS = 2


@dataclass(frozen=True)
class Straight:
    """A back-off that never looks, and averages all iterates. Notes where the tensors of a batched step lie."""

    certain = False

    def checks(self, epochs: float) -> int:
        return 0

    def __call__(self, trajectory: Trajectory, epochs: float) -> Any:
        before = addresses(trajectory)
        trajectory.train(epochs, [IterateAverage(memory=1.0)])
        moved.append(addresses(trajectory) != before)
        return (trajectory.coin(0) * 0).long()


moved = list[bool]()


def addresses(trajectory: Trajectory) -> list[int]:
    """Where weights, buffers and optimizer state are."""
    if not isinstance(trajectory, BatchedTrajectory):
        return []
    families = [optimizers for _, optimizers in trajectory._optimizers]
    states = [
        stack for each in families if hasattr(each, "state") for stacks in each.state.values() for stack in stacks
    ]
    tensors: list[Any] = [*trajectory.chunk.stacks.values(), *trajectory.chunk.buffers.values(), *states]
    return [tensor.inner.data_ptr() for tensor in tensors]


def reading_loss(output: Tensor, target: Tensor) -> Tensor:
    """A loss that asks for a number: what the counts must show."""
    loss = F.cross_entropy(output, target)
    return loss * 1.0 if float(loss.detach()) > 0 else loss


def per_step(engine: Engine, setup: Setup, policy: Policy) -> dict[str, float]:
    """The counts of one SGD step of all individuals: those of another epoch, divided by its steps."""
    with engine.open(setup, quiet) as session:
        start = RandomStart()(setup.task, setup.genome, session, INDIVIDUALS, setup.seeds.at("init"))
        anchor = {"anchor": Anchor(every=2), "anchor_row": start.rows[0]}
        counted = list[dict[str, int]]()
        for epochs in (2, 2, 3):  # the first time something is still recorded
            COUNTS.clear()
            step = Step(k=1, epochs=epochs, backoff=Straight(), before=0, total=4, **anchor)
            session.train(start, [policy] * INDIVIDUALS, step)
            counted.append(dict(COUNTS))
    _, two, three = counted
    return {name: (three[name] - two.get(name, 0)) / STEPS for name in three}


def per_part(engine: Engine) -> float:
    """How often the host waits for a part of a fitness of a full chunk: for four parts more, divided by four."""
    return (_waits(engine, parts=8) - _waits(engine, parts=4)) / 4


def _waits(engine: Engine, parts: int) -> int:
    (x, y), n = miniature(perceptron)._train.data(), 64 * parts
    fitness = (x.repeat(n // len(x) + 1, 1)[:n], y.repeat(n // len(y) + 1)[:n])
    task = on_device(Supervised(perceptron, F.cross_entropy, train=(x, y), fitness=fitness, batch_size=20))
    setup = prepare(task, RECIPE, SEED)
    with engine.open(setup, quiet) as session:
        start = RandomStart()(setup.task, setup.genome, session, INDIVIDUALS, setup.seeds.at("init"))
        bred = [Birth(f"1.1.{number}", mates=(number,)) for number in range(INDIVIDUALS)]
        for _ in range(3):  # the first time data are looked at, the second time a fitness is recorded
            COUNTS.clear()
            session.evaluate(start, bred)
    return COUNTS["waits"]


def quiet(phase: str, done: int, total: int) -> None:
    """Report no progress."""


def on_device(task: Supervised) -> Supervised:
    return task.on_device(torch.device(DEVICE), most=1 << 30)


def setup_of(network: Callable[[], nn.Module]) -> Setup:
    return prepare(on_device(miniature(network)), RECIPE, SEED)


def counts() -> dict[str, Any]:
    found: dict[str, Any] = {"steps": {}, "on the host": {}, "parts": {}}
    for name, engine in ENGINES.items():
        for network, policy in CASES:
            found["steps"][f"{name}, {network}, {policy}"] = per_step(
                engine, setup_of(NETWORKS[network]), POLICIES[policy]
            )
        found["on the host"][name] = per_step(engine, prepare(miniature(perceptron), RECIPE, SEED), POLICIES["sgd"])
        found["parts"][name] = per_part(engine)
    task = on_device(miniature(perceptron))
    task._objective = OfOutput(reading_loss)
    found["a loss that reads"] = per_step(ENGINES["Loop"], prepare(task, RECIPE, SEED), POLICIES["sgd"])
    return {**found, "moved": any(moved)}


def conformance() -> None:
    check_engine(ENGINES["Loop"])
    check_engine(ENGINES["Vmap"], tolerance=1e-4)


if __name__ == "__main__":
    with counted_device():
        if sys.argv[1:] == ["conformance"]:
            conformance()
        else:
            print(json.dumps(counts()))
