"""One individual's SGD step: what a snapshot remembers, what a restore brings back, what an epoch does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import esgd
from esgd.errors import RecipeError, TaskError
from esgd.operators import BestOf, Carried, Elitist, Never, PerEpoch, PerGeneration, trajectories
from esgd.protocols import Trajectory
from esgd.schedules import Cosine, Moment, Tail
from esgd.species import Fixed, Optimizer, Sgd
from tests.small import (
    RECORDING_SGD,
    RecordingSgd,
    batchnorm_mlp,
    classify,
    dropout_mlp,
    mlp,
    random_data,
    true_fitness,
)

ALONE = {"population": 1, "mates": 1, "evolution_steps": 0, "generations": 1}
POLICIES = [
    esgd.Policy(optimizer="sgd", hyper={"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    esgd.Policy(optimizer="adam", hyper={"lr": 0.01}),
    esgd.Policy(optimizer="adamw", hyper={"lr": 0.01}, schedule=Cosine()),
    esgd.Policy(optimizer="rmsprop", hyper={"lr": 0.01, "momentum": 0.5}),
]


def same_order() -> Any:
    """Training batches that come in the same order in every epoch."""
    x, y = random_data(48)
    batches = [(x[i : i + 16], y[i : i + 16]) for i in (0, 16, 32)]
    return lambda: batches


@dataclass(frozen=True, eq=False, kw_only=True)
class Script:
    """A back-off strategy that does what it is told, and keeps the snapshots it was told to take."""

    moves: tuple[str, ...]
    snapshots: list[Any] = field(default_factory=list)
    certain: bool = False

    def checks(self, epochs: int) -> int:
        return 0

    def __call__(self, trajectory: Trajectory, epochs: int) -> Tensor:
        everyone = torch.ones(len(trajectory.fitness), dtype=torch.bool)
        for move in self.moves:
            match move:
                case "snapshot":
                    self.snapshots.append(trajectory.snapshot())
                case "back":
                    trajectory.restore(self.snapshots[-1], everyone)
                case "nobody back":
                    trajectory.restore(self.snapshots[-1], ~everyone)
                case _:
                    getattr(trajectory, move)()
        trajectory.measure()
        return torch.zeros(len(trajectory.fitness), dtype=torch.int64)


def run(script: Any, policy: esgd.Policy, make_model: Any = mlp, **changes: Any) -> esgd.Generation:
    recipe = esgd.Recipe(**{**ALONE, "sgd_epochs": 3, "backoff": script, "species": Fixed(policy=policy), **changes})
    (generation,) = esgd.evolve(classify(make_model, train=same_order()), recipe, seed=0)
    return generation


@pytest.mark.slow
@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp], ids=lambda m: m.__name__)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.optimizer)
def test_a_restore_brings_back_weights_buffers_and_optimizer_state(policy: esgd.Policy, make_model: Any) -> None:
    script = Script(moves=("epoch", "measure", "snapshot", "epoch", "measure", "epoch", "back", "snapshot"))
    run(script, policy, make_model)
    before, after = script.snapshots
    assert torch.equal(after.row, before.row)
    assert after.fitness == before.fitness
    assert set(after.buffers) == set(before.buffers) == set(dict(make_model().named_buffers()))
    assert all(torch.equal(after.buffers[name], buffer) for name, buffer in before.buffers.items())
    assert before.optimizer["state"], "this optimizer has no state, so nothing is compared"
    torch.testing.assert_close(after.optimizer, before.optimizer, rtol=0, atol=0)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.optimizer)
def test_going_back_and_on_is_as_if_the_detour_had_not_been(policy: esgd.Policy) -> None:
    """On batches in a fixed order, with a schedule that knows the epoch left out."""
    policy = esgd.Policy(optimizer=policy.optimizer, hyper=policy.hyper)
    detour = Script(moves=("epoch", "snapshot", "epoch", "epoch", "back", "epoch"))
    straight = Script(moves=("epoch", "epoch"))
    assert torch.equal(run(detour, policy).population.rows, run(straight, policy).population.rows)


def test_going_back_to_the_start_leaves_no_trace_of_momentum() -> None:
    script = Script(moves=("snapshot", "epoch", "epoch", "back", "epoch"))
    assert torch.equal(
        run(script, POLICIES[0]).population.rows, run(Script(moves=("epoch",)), POLICIES[0]).population.rows
    )


def test_a_restore_for_nobody_changes_nothing() -> None:
    script = Script(moves=("snapshot", "epoch", "nobody back"))
    plain = Script(moves=("epoch",))
    assert torch.equal(run(script, POLICIES[0]).population.rows, run(plain, POLICIES[0]).population.rows)


@pytest.mark.parametrize("backoff", [PerEpoch(), PerGeneration(), BestOf(average=2)], ids=str)
def test_after_a_back_off_the_optimizer_still_has_what_was_drawn(backoff: Any) -> None:
    """Every step of a run in which everything is backed off."""
    RecordingSgd.steps.clear()
    hyper = {"lr": 1e9, "momentum": 0.37, "nesterov": True, "weight_decay": 0.25}
    species = Optimizer(name=RECORDING_SGD, lr=1e9, gamma=1.0, hyper={n: v for n, v in hyper.items() if n != "lr"})
    recipe = esgd.Recipe(**ALONE, sgd_epochs=3, backoff=backoff, species=species)
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    assert generation.backed_off > 0
    assert RecordingSgd.steps == [hyper] * 9


def test_the_schedule_factor_is_applied_to_the_drawn_rate_at_every_step_also_after_a_back_off() -> None:
    RecordingSgd.steps.clear()
    species = Optimizer(name=RECORDING_SGD, lr=1e9, gamma=1.0, schedule=Tail(floor=0.5))
    (_,) = esgd.evolve(classify(), esgd.Recipe(**ALONE, sgd_epochs=3, backoff=PerEpoch(), species=species), seed=0)
    moments = [Moment(epoch=s + i / 3, epochs=3) for s in range(3) for i in range(3)]
    assert [step["lr"] for step in RecordingSgd.steps] == [1e9 * Tail(floor=0.5)(moment) for moment in moments]


def test_after_a_back_off_the_next_epoch_has_a_new_data_order() -> None:
    """Three epochs from the same place with the same optimizer, refused each time, end in three places."""
    script = Script(moves=("snapshot", "epoch", "snapshot"))
    twice = Script(moves=("snapshot", "epoch", "back", "epoch", "snapshot"))
    policy = esgd.Policy(optimizer="sgd", hyper={"lr": 0.05})
    for each in (script, twice):
        recipe = esgd.Recipe(**ALONE, sgd_epochs=3, backoff=each, species=Fixed(policy=policy))
        list(esgd.evolve(classify(), recipe, seed=0))
    assert torch.equal(script.snapshots[0].row, twice.snapshots[0].row)
    assert not torch.equal(script.snapshots[1].row, twice.snapshots[1].row)


def test_dropout_is_addressed_so_a_run_can_be_repeated() -> None:
    recipe = esgd.Recipe(population=2, generations=2, sgd_epochs=2)
    torch.manual_seed(1)
    *_, once = esgd.evolve(classify(dropout_mlp), recipe, seed=0)
    torch.manual_seed(2)
    *_, again = esgd.evolve(classify(dropout_mlp), recipe, seed=0)
    assert torch.equal(once.population.rows, again.population.rows)


def test_the_callers_random_state_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    list(esgd.evolve(classify(dropout_mlp), esgd.Recipe(population=2, generations=1), seed=0))
    assert torch.equal(torch.rand(3), expected)


def test_gradients_are_clipped_to_the_given_norm() -> None:
    """Plain SGD with lr = 1 moves by the gradient: no further than the norm, in every step."""
    policy = esgd.Policy(optimizer="sgd", hyper={"lr": 1.0}, clip_norm=1e-3)
    script = Script(moves=("snapshot", "epoch", "snapshot"))
    run(script, policy)
    assert 0 < float((script.snapshots[1].row - script.snapshots[0].row).norm()) <= 3e-3 * (1 + 1e-4)
    free = Script(moves=("snapshot", "epoch", "snapshot"))
    run(free, esgd.Policy(optimizer="sgd", hyper={"lr": 1.0}))
    assert float((free.snapshots[1].row - free.snapshots[0].row).norm()) > 0.1


def test_an_accepted_policy_is_the_leaders_and_a_refused_one_is_not() -> None:
    """Generation 2's updates are all refused: the policy on record stays that of generation 1."""
    policies = {
        1: esgd.Policy(optimizer="sgd", hyper={"lr": 0.01}),
        2: esgd.Policy(optimizer="adam", hyper={"lr": 1e30}),
    }
    recipe = esgd.Recipe(**{**ALONE, "generations": 2, "population": 2}, sgd_epochs=1, species=lambda d: policies[d.k])
    data = random_data(48)
    first, second = esgd.evolve(classify(train=data, fitness=data), recipe, seed=0)
    assert first.accepted == (True, True)
    assert first.population.policies == (policies[1], policies[1])
    assert second.accepted == (False, False)
    assert second.policies == (policies[2], policies[2])
    assert second.population.policies == (policies[1], policies[1])
    assert "sgd" in str(second)


def test_a_diverged_individual_is_counted_and_not_an_error() -> None:
    species = lambda draw: esgd.Policy(optimizer="sgd", hyper={"lr": 1e30 if draw.j == 1 else 1e-3})  # noqa: E731
    recipe = esgd.Recipe(population=3, generations=1, sgd_epochs=2, evolution_steps=0, species=species, backoff=Never())
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    assert generation.diverged == 1
    assert generation.population.fitness.isinf().tolist() == [False, True, False]


def test_trajectories_go_on_where_the_sgd_step_ended() -> None:
    """All updates are refused, yet the two places that are not elite go to trajectories' ends, with their fitness."""
    fitness = random_data(70, seed=1)
    recipe = esgd.Recipe(
        population=3,
        offspring=1,
        elites=1,
        generations=1,
        sgd_epochs=1,
        species=Sgd(lr=3.0, gamma=1.0, momentum_probability=0.0),
        survival=Elitist(rest=trajectories),
        baggage=Carried(),
    )
    (generation,) = esgd.evolve(classify(fitness=fitness), recipe, seed=0)
    assert generation.backed_off == 3
    assert generation.guarantee == "held"
    ends = generation.population[1:]
    assert min(ends.fitness.tolist()) > min(f for _, f in generation.before)
    for i in range(2):
        assert true_fitness(ends[i].best.module(), fitness) == pytest.approx(float(ends.fitness[i]), rel=1e-5)
        assert ends.policies[i] in generation.policies, "they did take the step"


def test_the_mean_of_late_iterates_is_the_mean_of_the_epoch_ends() -> None:
    script = Script(moves=("epoch", "snapshot", "epoch", "snapshot", "epoch", "snapshot"))
    policy = esgd.Policy(optimizer="sgd", hyper={"lr": 0.05})
    run(script, policy)
    _, second, third = script.snapshots

    @dataclass(frozen=True, kw_only=True)
    class TakesTheMean:
        """`BestOf(average=2)` where the mean is the best place by decree."""

        certain: bool = False

        def checks(self, epochs: int) -> int:
            return 1

        def __call__(self, trajectory: Trajectory, epochs: int) -> Tensor:
            places: list[Tensor] = []

            class Watched:
                fitness = property(lambda _: trajectory.fitness)
                rows = property(lambda _: trajectory.rows)
                train, snapshot, restore, coin = (
                    trajectory.train,
                    trajectory.snapshot,
                    trajectory.restore,
                    trajectory.coin,
                )

                def measure(self) -> Tensor:
                    trajectory.measure()
                    return torch.zeros(1, dtype=torch.float64) if places else torch.ones(1, dtype=torch.float64)

                def place(self, rows: Tensor) -> None:
                    places.append(rows)
                    trajectory.place(rows)

            return BestOf(average=2)(Watched(), epochs)

    generation = run(TakesTheMean(), policy)
    torch.testing.assert_close(generation.population.rows[0], (second.row + third.row) / 2)


def test_an_optimizer_that_refuses_its_keywords_is_explained() -> None:
    policy = esgd.Policy(optimizer="sgd", hyper={"lr": 0.1, "betas": (0.9, 0.999)})
    with pytest.raises(RecipeError, match="SGD refuses .*betas.*correct its `hyper` ranges"):
        run(Never(), policy)
    with pytest.raises(RecipeError, match="Adam refuses .*Invalid epsilon"):
        run(Never(), esgd.Policy(optimizer="adam", hyper={"lr": 0.1, "eps": -1.0}))


def test_a_loss_that_does_not_depend_on_the_network_is_explained() -> None:
    task = esgd.Supervised(
        mlp, lambda output, target: torch.tensor(1.0), train=random_data(48), fitness=random_data(70)
    )
    with pytest.raises(TaskError, match="requires_grad=False.*Check that the loss uses the network's output"):
        next(esgd.evolve(task, esgd.Recipe(population=2), seed=0))
