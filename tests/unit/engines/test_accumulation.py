"""Gradient accumulation: a step of the optimizer with the mean gradient of several batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Policy, Vmap
from esgd._algorithm.initialization import prepare, scored
from esgd._tensors.averages import IterateAverage
from esgd.engines.computing import Computing
from esgd.engines.contract import NetworkState
from esgd.engines.fitness import Scorer
from esgd.engines.network import Network
from esgd.engines.sgd import SequentialTrajectory
from esgd.errors import RecipeError
from esgd.operators import Anchor, BestOfLooks, CarriedByMate, RandomStart
from esgd.population import Population
from esgd.protocols import Setup, Step
from esgd.schedules import Linear
from esgd.species import Choice, Sgd
from esgd.testing.evidence import contents, difference
from esgd.testing.miniature import normalised
from tests.small import RECORDING_SGD, RecordingSgd, ask, classify, mlp, random_data

SAMPLES, BATCH = 70, 16  # batches of 16, 16, 16, 16 and 6
RECIPE = esgd.Recipe(population=2, offspring=0, generations=2, sgd_epochs=2)
STEP = Step(k=1, epochs=2, backoff=None, before=0, total=2)  # type: ignore[arg-type]


def exact_mlp() -> nn.Module:
    """In float64: only the order of sums may differ."""
    return mlp().double()


def exact_data(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = random_data(samples)
    return x.double(), y


def setup(loss: Any = F.cross_entropy) -> Setup:
    task = esgd.Supervised(exact_mlp, loss, train=exact_data(SAMPLES), fitness=exact_data(30), batch_size=BATCH)
    return prepare(task, RECIPE, 0)


def start(given: Setup, size: int = 1) -> Population:
    with Loop(threads=1).open(given, lambda *tick: None) as loop:
        return scored(loop, RandomStart()(given.task, given.genome, loop, size, given.seeds.at("init")))


def trajectory(given: Setup, policy: Policy, begin: Population, **changes: Any) -> SequentialTrajectory:
    network, scorer, seeds = Network(given, Computing()), Scorer(given.task), given.seeds.at("sgd", 1, 0)
    begun, step = NetworkState(begin.rows[0], {}, float(begin.fitness[0])), replace(STEP, **changes)
    return SequentialTrajectory(network, begun, policy, seeds, step, score=lambda _: scorer.score(network))


def joined(batches: Sequence[Any], accumulate: int) -> list[Any]:
    """The large batches that accumulated ones stand for."""
    groups = [batches[i : i + accumulate] for i in range(0, len(batches), accumulate)]
    return [tuple(torch.cat(parts) for parts in zip(*group, strict=True)) for group in groups]


LOSSES = {
    "plain": F.cross_entropy,
    "weighted, with an ignored class": nn.CrossEntropyLoss(
        weight=torch.tensor([0.3, 1.0, 2.0]).double(), ignore_index=1
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(
    "policy",
    [
        Policy(optimizer="sgd", hyper={"lr": 0.3, "momentum": 0.9, "nesterov": True}, clip_norm=0.2),
        Policy(optimizer="adamw", hyper={"lr": 0.05, "weight_decay": 0.1}),
        Policy(optimizer="lbfgs", hyper={"lr": 0.1, "max_iter": 3}),
    ],
    ids=str,
)
def test_a_step_is_that_of_torch_on_one_large_batch(policy: Policy, loss: Any) -> None:
    """Two epochs of steps with three batches, and two that are left: a smaller one, of unequal sizes."""
    given = setup(loss)
    begin = start(given)
    policy = replace(policy, accumulate=3, schedule=Linear(floor=0.2))
    there = trajectory(given, policy, begin)
    there.train(2)
    network = given.genome.module(begin.rows[0], {}).train()
    plain = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "lbfgs": torch.optim.LBFGS}[policy.optimizer](
        network.parameters(), **policy.hyper
    )
    for s in range(2):
        batches = joined(list(given.task.batches(given.seeds.at("sgd", 1, 0, "data", s), {})), 3)
        assert [len(y) for _, y in batches] == [48, 22]
        for number, (x, y) in enumerate(batches):
            plain.param_groups[0]["lr"] = policy.hyper["lr"] * (1 - 0.8 * (s + number / 2) / 2)

            def closure(x: Any = x, y: Any = y) -> torch.Tensor:
                plain.zero_grad()
                value = loss(network(x), y)
                value.backward()
                if policy.clip_norm:
                    nn.utils.clip_grad_norm_(network.parameters(), policy.clip_norm)
                return value

            plain.step(closure)
    torch.testing.assert_close(there.rows[0], given.genome.read(network)[0], rtol=1e-7, atol=1e-9)


def test_samples_batches_and_iterates_are_counted_as_what_they_are() -> None:
    """The ledger has samples; schedules, averages and looks count steps of the optimizer."""
    RecordingSgd.steps.clear()
    given = setup()
    policy = Policy(optimizer=RECORDING_SGD, hyper={"lr": 1.0}, schedule=Linear(floor=0.0), accumulate=2)
    there, average = trajectory(given, policy, start(given), epochs=1, total=1), IterateAverage()
    there.train(1, [average])
    assert [step["lr"] for step in RecordingSgd.steps] == pytest.approx([1, 2 / 3, 1 / 3])
    assert average._seen == 3
    assert (there.work.sgd_forward, there.work.sgd_backward) == (SAMPLES, SAMPLES)


def test_a_look_inside_an_epoch_is_at_the_end_of_a_step_and_changes_nothing() -> None:
    given, policy = setup(), Policy(optimizer="adam", hyper={"lr": 0.01}, accumulate=2)
    begin = start(given)
    through, paused = (trajectory(given, policy, begin) for _ in range(2))
    through.train(2)
    for until in (0.5, 1.2, 2):
        paused.train(until)
        if until == 0.5:
            assert paused.work.sgd_forward == 4 * BATCH, "two of three steps: four whole batches"
    assert torch.equal(paused.rows, through.rows)
    assert through.work.sgd_forward == paused.work.sgd_forward == 2 * SAMPLES


def test_one_batch_a_step_is_what_it_was_bit_by_bit() -> None:
    given, policy = setup(), Policy(optimizer="adam", hyper={"lr": 0.01})
    begin = start(given)
    ours, one = (trajectory(given, each, begin) for each in (policy, replace(policy, accumulate=1)))
    assert policy.record() == {"optimizer": "adam", "lr": 0.01}
    ours.train(1)
    one.train(1)
    assert torch.equal(ours.rows, one.rows)


@pytest.mark.slow
def test_many_networks_at_once_accumulate_as_one_by_one() -> None:
    """Rows with other numbers of batches, other optimizers, clipping, averages on the way, and carried state."""
    sgd = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9}, clip_norm=0.5)
    adam = Policy(optimizer="adam", hyper={"lr": 0.01}, schedule=Linear())
    policies = [
        replace(sgd, accumulate=2),
        replace(adam, accumulate=2),
        replace(sgd, accumulate=2, clip_norm=None),
        replace(adam, accumulate=3),
        replace(adam, accumulate=3),
        Policy(optimizer="rmsprop", hyper={"lr": 0.01}, accumulate=2),
        sgd,
    ]
    task = classify(normalised, train=random_data(SAMPLES))
    made = replace(prepare(task, RECIPE, 0), baggage=CarriedByMate())
    begin = start(made, len(policies))
    step = replace(STEP, epochs=1.5, backoff=BestOfLooks(looks=(0.4,), ema=1.0), keep_ends=True, anchor=Anchor(every=2))
    found = []
    for engine in (Vmap(chunk=4, threads=1), Loop(threads=1)):
        with engine.open(made, lambda *tick: None) as session:
            trained = session.train(begin, policies, step)
            spent = session.spent()
            found.append([contents(trained.population), trained.refused, spent.sgd_forward, spent.sgd_backward])
    assert difference(*found, tolerance=1e-4) == ""


def test_the_number_of_batches_may_be_drawn() -> None:
    pool = Sgd(lr=0.1, accumulate=Choice((1, 4)))
    assert {pool(ask(j=j)).accumulate for j in range(20)} == {1, 4}


@pytest.mark.parametrize("accumulate", [0, -1, 1.5, True, "2"])
def test_a_number_of_batches_that_is_none_is_refused(accumulate: Any) -> None:
    for make in (
        lambda: Sgd(lr=0.1, accumulate=accumulate),
        lambda: Policy(optimizer="sgd", hyper={}, accumulate=accumulate),
    ):
        with pytest.raises(RecipeError, match="accumulate=.*batches whose mean gradient one step.*Use 1 for each"):
            make()
