"""Is a task what engines rely on: addressed batches, and a fixed fitness in parts?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from esgd.genome import Genome, build
from esgd.protocols import Batch, ScoresOutputs, Task, Weighted
from esgd.randomness import Seeds, global_randomness
from esgd.testing.evidence import difference, expect, passing_on_errors

UNKNOWN = "no_such_setting"


def check_task(task: Task) -> None:
    """Batches decided by seeds, a deterministic fitness whatever the order of its parts, a loss with a gradient.

    >>> from esgd.testing.miniature import miniature, perceptron
    >>> check_task(miniature(perceptron))
    """
    seeds = Seeds(0, ("check_task",))
    network, other = build(task.model, seeds.at("model")), build(task.model, seeds.at("model"))
    expect(
        network is not other,
        "model() returned the same network twice. Every individual needs one of its own: build a new one in each call.",
    )
    genome = Genome.of(network)
    expect(
        not difference(genome.read(other), genome.read(network)),
        "model() initialised two networks differently under the same seed. Initialise with torch's, NumPy's or "
        "random's global generator; inside model() they are addressed.",
    )
    _check_settings(task, network)
    _check_batches(task, seeds)
    _check_loss(task, network, _batches(task, seeds.at("loss"))[0])
    _check_fitness(task, build(task.model, seeds.at("model")).eval())
    _check_calibration(task)
    with passing_on_errors("describe() cannot be written into the manifest"):
        json.dumps(task.describe())


def _check_settings(task: Task, network: nn.Module) -> None:
    task.prepare(network, {})
    try:
        task.prepare(network, {UNKNOWN: 1})
    except Exception as error:  # noqa: BLE001 - whatever it is, its message is what a user reads
        expect(
            UNKNOWN in str(error),
            f"prepare refused the setting {UNKNOWN!r} with {type(error).__name__}: {error}. Name the setting.",
        )
    else:
        raise AssertionError(
            f"prepare took the setting {UNKNOWN!r} without a word. A misspelt setting would be recorded as if it had "
            f"been applied: refuse what the task does not know."
        )


def _check_batches(task: Task, seeds: Seeds) -> None:
    first, again = _batches(task, seeds), _batches(task, seeds)
    expect(first, "batches() gave none. An epoch trains on at least one batch.")
    text = difference(again, first)
    expect(
        not text,
        f"two epochs with the same seeds differ: {text}. Take all randomness from `seeds` (or from the global "
        f"generators, which are lent the epoch's seed), or a resumed run is another run.",
    )
    sizes = [task.size(batch) for batch in first]
    expect(
        all(type(size) is int and size > 0 for size in sizes),
        f"size() of the batches is {sizes}: it counts samples, so it is a whole number above 0.",
    )
    steps = task.steps({})
    expect(
        steps is None or steps == len(first),
        f"steps() says {steps}, but an epoch has {len(first)} batches. Schedules end where steps() says: return the "
        f"number of batches, or None if it cannot be known.",
    )


def _batches(task: Task, seeds: Seeds) -> list[Batch]:
    with global_randomness(seeds.integer("globals")):
        return list(task.batches(seeds.at("data"), {}))


def _check_loss(task: Task, network: nn.Module, batch: Batch) -> None:
    network.train()
    with global_randomness(0):
        loss = task.loss(network, batch)
    expect(
        isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad,
        f"loss() returned {loss!r}. SGD needs a scalar tensor that depends on the network's parameters.",
    )
    loss.backward()
    expect(
        any(p.grad is not None and p.grad.any() for p in network.parameters()),
        "the gradient of loss() is zero for every parameter, so nothing would be learnt. Is the output detached?",
    )


@torch.no_grad()
def _check_fitness(task: Task, network: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    first = _fitness(task, network, None)
    numbers = list(first)
    expect(numbers == list(range(len(numbers))), f"parts() gave the numbers {numbers}: they count from 0, in order.")
    text = difference(_fitness(task, network, None), first)
    expect(
        not text,
        f"one network was scored twice and part {text}. Theorem 1 needs a deterministic fitness: no dropout, no random "
        f"augmentation, a fixed order.",
    )
    text = difference(_fitness(task, network, numbers[::-1]), first)
    expect(
        not text,
        f"visited in reverse order, part {text}. A part's number stands for the same samples in every order; a task "
        f"that cannot reorder ignores `order` and numbers its parts all the same.",
    )
    expect(
        not task.nonnegative or all(total >= 0 for total, _, _ in first.values()),
        f"the task says that it is nonnegative, but the parts of its fitness are {first}. Early abort would be wrong.",
    )
    text = difference(dict(network.state_dict()), before)
    expect(not text, f"taking the fitness changed the network: {text}. It must only look.")
    if isinstance(task, ScoresOutputs):
        _check_outputs(task, network)


@torch.no_grad()
def _check_outputs(task: Any, network: nn.Module) -> None:
    """The fitness of an output is that of the network which has made it."""
    for part, batch in task.parts(None):
        output = task.output(network, batch)
        if output is None:
            return
        of_output, of_network = float(task.output_fitness(output, batch)), float(task.fitness(network, batch))
        expect(
            of_output == of_network,
            f"the fitness of part {part} is {of_network}, but output_fitness of the network's output is {of_output}. "
            f"Use one for the other, or return None from output if the fitness is not a function of it.",
        )


def _fitness(task: Task, network: nn.Module, order: Sequence[int] | None) -> dict[int, tuple[float, int, float]]:
    """The sum and the size of each part, and what it counts as, by number."""
    divisor = task.divisor if isinstance(task, Weighted) else task.size
    found = {
        part: (float(task.fitness(network, batch)), task.size(batch), float(divisor(batch)))
        for part, batch in task.parts(order)
    }
    sizes, counted = ([each[place] for each in found.values()] for place in (1, 2))
    expect(
        found and all(size > 0 for size in sizes),
        f"the parts of the fitness have {sizes} samples. A mean needs at least one.",
    )
    expect(
        min(counted) >= 0 and sum(counted) > 0,
        f"the divisors of the parts are {counted}. They are what the parts count as in the mean: none is below 0, and "
        f"their sum is above 0.",
    )
    return dict(sorted(found.items())) if order is not None else found


def _check_calibration(task: Task) -> None:
    text = difference(*(_calibration(task, 2) for _ in range(2)))
    expect(
        not text,
        f"calibration() gave two different sets: {text}. BatchNorm statistics are part of every fitness, and parents "
        f"and offspring are only comparable on the same samples.",
    )


def _calibration(task: Task, samples: int) -> Any:
    return list(task.calibration(samples))
