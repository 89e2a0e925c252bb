"""What an individual's optimizer is really given: the same as in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd._algorithm.initialization import prepare, scored
from esgd.engines.computing import Computing
from esgd.engines.contract import NetworkState
from esgd.engines.fitness import Scorer
from esgd.engines.network import Network
from esgd.engines.optimizers import build_optimizer, state_kind
from esgd.engines.sgd import SequentialTrajectory
from esgd.errors import RecipeError
from esgd.operators import RandomStart
from esgd.policies import Policy
from esgd.population import OptimizerState, Population
from esgd.protocols import Setup, Step
from esgd.schedules import Linear
from esgd.species import Sgd
from tests.small import CLASSES, INPUTS, RECORDING_SGD, RecordingSgd, classify, mlp, random_data

SGD = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9})
RECIPE = esgd.Recipe(population=2, offspring=0, generations=2, sgd_epochs=2)


def setup(make_model: Callable[[], nn.Module] = mlp, **changes: Any) -> Setup:
    return prepare(classify(make_model, **changes), RECIPE, 0)


def start(given: Setup) -> Population:
    with esgd.Loop(threads=1).open(given, lambda *tick: None) as loop:
        return scored(loop, RandomStart()(given.task, given.genome, loop, 1, given.seeds.at("init")))


def trajectory(
    given: Setup, policy: Policy = SGD, *, begin: Population | None = None, **changes: Any
) -> SequentialTrajectory:
    begin = begin if begin is not None else start(given)
    step = Step(**{"k": 1, "epochs": 2, "backoff": None, "before": 0, "total": 2, **changes})
    begun = NetworkState(
        row=begin.rows[0],
        buffers={name: stacked[0] for name, stacked in begin.buffers.items()},
        fitness=float(begin.fitness[0]),
        optimizer_state=begin.optimizer_states[0],
    )
    network, scorer, seeds = Network(given, Computing()), Scorer(given.task), given.seeds.at("sgd", 1, 0)
    return SequentialTrajectory(network, begun, policy, seeds, step, score=lambda _: scorer.score(network))


def test_the_fitness_is_unknown_between_an_epoch_and_its_measurement() -> None:
    there = trajectory(setup())
    assert there.fitness.isfinite().all()
    there.epoch()
    assert there.fitness.isnan().all()
    assert torch.equal(there.measure(), there.fitness)
    there.place(torch.zeros_like(there.rows))
    assert there.fitness.isnan().all()
    assert not there.rows.any()


def test_it_has_moved_unless_it_is_back_at_the_start() -> None:
    there = trajectory(setup())
    home = there.snapshot()
    assert not there.moved
    there.epoch()
    assert there.moved
    there.restore(home, torch.tensor([True]))
    assert not there.moved


def dropping() -> nn.Module:
    """Nothing is 0 before the dropout layer, so that its zeros are the mask."""
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.Softplus(), nn.Dropout(0.3), nn.Linear(7, CLASSES))


def test_dropout_is_on_in_training_and_draws_other_masks_in_every_epoch() -> None:
    masks: list[torch.Tensor] = []
    there = trajectory(setup(dropping), Policy(optimizer="sgd", hyper={"lr": 0.0}))
    there.network.module[2].register_forward_hook(lambda layer, inputs, output: masks.append(output == 0))
    there.epoch()
    there.epoch()
    assert all(mask.any() for mask in masks)
    assert not any(torch.equal(a, b) for a, b in zip(masks[:3], masks[3:], strict=True))
    masks.clear()
    there.measure()
    assert not any(mask.any() for mask in masks)


def test_a_drawn_batch_size_shortens_the_steps_of_the_schedule_too() -> None:
    RecordingSgd.steps.clear()
    policy = Policy(optimizer=RECORDING_SGD, hyper={"lr": 1.0}, schedule=Linear(floor=0.0), settings={"batch_size": 24})
    trajectory(setup(), policy, epochs=1).epoch()
    assert [step["lr"] for step in RecordingSgd.steps] == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "adagrad", "rmsprop", "lbfgs", "rprop", "nadam"])
def test_an_epoch_equals_plain_torch(optimizer: str) -> None:
    given = setup(batch_size=48)
    begin = start(given)
    there = trajectory(given, Policy(optimizer=optimizer, hyper={"lr": 0.01}), begin=begin)
    there.epoch()
    network = given.genome.module(begin.rows[0], {}).train()
    classes = {name.lower(): cls for name, cls in vars(torch.optim).items()}
    plain = classes[optimizer](network.parameters(), lr=0.01)

    def closure() -> torch.Tensor:
        plain.zero_grad()
        loss = F.cross_entropy(network(x), y)
        loss.backward()
        return loss.detach()

    ((x, y),) = given.task.batches(given.seeds.at("sgd", 1, 0, "data", 0), {})
    plain.step(closure)
    torch.testing.assert_close(there.rows[0], given.genome.read(network)[0], rtol=1e-5, atol=1e-6)


def test_lbfgs_sees_the_loss_and_its_line_search_works() -> None:
    policy = Policy(optimizer="lbfgs", hyper={"lr": 1.0, "line_search_fn": "strong_wolfe"})
    given = setup(batch_size=48, fitness=random_data(48))
    there = trajectory(given, policy)
    before = float(there.fitness)
    there.epoch()
    assert float(there.measure()) < before - 0.1


class LossWatcher(torch.optim.SGD):
    """An optimizer of one's own that looks at the loss, as line searches do."""

    seen: ClassVar[list[float]] = []

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        LossWatcher.seen.append(float(loss))
        return loss


def test_an_optimizer_of_ones_own_sees_the_loss_too() -> None:
    LossWatcher.seen.clear()
    trajectory(setup(), Policy(optimizer=f"{__name__}:LossWatcher", hyper={"lr": 0.1})).epoch()
    assert min(LossWatcher.seen) > 0


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_sparse_embeddings_train_as_in_plain_torch(name: str) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))

    tokens, labels = torch.randint(5, (20, 2)), torch.randint(2, (20,))
    there = trajectory(
        setup(make, train=(tokens, labels), fitness=(tokens, labels)), Policy(optimizer=name, hyper={"lr": 0.1})
    )
    before = there.rows
    there.epoch()
    assert not torch.equal(there.rows, before)


def test_the_ledger_counts_every_sample_that_went_forward_and_back() -> None:
    there = trajectory(setup())
    there.epoch()
    there.measure()
    assert there.work.samples == {
        "sgd_forward": 48,
        "sgd_backward": 48,
        "fitness_sgd": 70,
        "fitness_evolution": 0,
        "fitness_saved": 0,
    }
    assert there.work.seconds_sgd > 0


def test_carried_state_is_a_copy() -> None:
    weight, carried = (
        nn.Parameter(torch.zeros(2)),
        OptimizerState(state_kind(SGD), {"0/momentum_buffer": torch.ones(2)}),
    )
    optimizer = build_optimizer([weight], SGD, carried)
    optimizer.state[weight]["momentum_buffer"].zero_()
    assert carried.tensors["0/momentum_buffer"].tolist() == [1.0, 1.0]


def test_a_clip_norm_that_is_not_positive_is_refused() -> None:
    with pytest.raises(RecipeError, match="clip_norm"):
        Sgd(lr=0.1, clip_norm=-1.0)


class Skipping(nn.Module):
    """A layer that has no gradient in the first step of an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.calls = nn.Parameter(torch.ones(INPUTS)), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        return x * self.scale if self.calls != 1 else x


@pytest.mark.parametrize("dampening", [0.0, 0.3])
def test_momentum_that_begins_later_than_that_of_other_parameters_begins_as_in_plain_sgd(dampening: float) -> None:
    given = setup(lambda: nn.Sequential(Skipping(), mlp()))
    begin, hyper = start(given), {"lr": 0.1, "momentum": 0.9, "dampening": dampening}
    fused, plain = (
        trajectory(given, Policy(optimizer="sgd", hyper={**hyper, **more}), begin=begin)
        for more in ({}, {"fused": False})
    )
    for there in (fused, plain):
        there.epoch()
    assert fused.optimizer.param_groups[0]["fused"] is True
    torch.testing.assert_close(fused.rows, plain.rows, rtol=1e-6, atol=1e-7)
    assert not torch.equal(fused.rows[0, :INPUTS], begin.rows[0, :INPUTS])


def test_a_type_error_of_the_loss_is_raised_and_no_step_is_taken_with_a_part_of_the_gradient() -> None:
    calls = 0

    def loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += output.requires_grad  # only batches of SGD count
        if calls == 2:
            raise TypeError("the loss of the second batch")
        return F.cross_entropy(output, y)

    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70, seed=1), batch_size=16)
    given = prepare(task, RECIPE, 0)
    begin, calls = start(given), 0
    there = trajectory(given, replace(SGD, accumulate=3), begin=begin)
    with pytest.raises(TypeError, match="the loss of the second batch"):
        there.epoch()
    assert torch.equal(there.rows, begin.rows)


SPARSE = [
    Policy(optimizer="adam", hyper={"lr": 0.01}),
    Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    Policy(optimizer="sgd", hyper={"lr": 0.1}, clip_norm=0.1),
    Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9}),
    Policy(optimizer="adagrad", hyper={"lr": 0.1}),
]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("policy", SPARSE, ids=str)
def test_a_sparse_embedding_is_trained_as_a_dense_one_by_every_optimizer(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randint(9, (48, INPUTS), generator=generator), random_data(48)[1]
    rows = []
    for sparse in (True, False):
        given = setup(
            lambda sparse=sparse: nn.Sequential(
                nn.Embedding(9, 4, sparse=sparse), nn.Flatten(), nn.Linear(4 * INPUTS, CLASSES)
            ),
            train=data,
            fitness=data,
        )
        there = trajectory(given, policy)
        there.epoch()
        rows.append(there.rows)
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-5, atol=1e-6)
