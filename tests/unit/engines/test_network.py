"""A kernel's network: loading, building offspring, BatchNorm statistics, the fitness, each checked by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

import esgd
from esgd._algorithm.initialization import prepare
from esgd.engines.computing import Computing
from esgd.engines.contract import Parts, Score, Stack
from esgd.engines.fitness import Scorer
from esgd.engines.jobs import build_offspring
from esgd.engines.network import Network
from esgd.errors import FitnessError
from esgd.operators import Averaged, FromFittest, Reestimated
from esgd.operators.start import founders
from esgd.population import Birth, Population
from esgd.protocols import Setup
from tests.small import CLASSES, INPUTS, batchnorm_mlp, classify, mlp, random_data

TRAIN, FITNESS = random_data(300), random_data(250, seed=1)


class Scored(Network):
    """A network with a scorer of its own."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, Computing())
        self.scorer = Scorer(setup.task)

    def score(self, cutoff: float = inf, begun: Parts | None = None) -> Score:
        return self.scorer.score(self, cutoff, [begun or {}])[0]


def a_network(make_model: Callable[[], nn.Module] = mlp, recipe: esgd.Recipe | None = None, **changes: Any) -> Scored:
    task = classify(make_model, **{"train": TRAIN, "fitness": FITNESS, **changes})
    return Scored(prepare(task, recipe or esgd.Recipe(), 0))


def loaded(made: Scored, network: nn.Module) -> Scored:
    made.load(*made.setup.genome.read(network))
    return made


def stack(parents: Population) -> Stack:
    return Stack(parents.rows, parents.buffers)


def three(made: Network) -> Population:
    return founders(made.setup.genome, [made.setup.task.model] * 3)


# Loading


def test_training_leaves_the_row_that_was_put_in_alone() -> None:
    made = a_network()
    row, buffers = made.setup.genome.read(mlp())
    before = row.clone()
    made.load(row, buffers)
    with torch.no_grad():
        for parameter in made.parameters:
            parameter.add_(1.0)
    assert torch.equal(made.row(), before + 1.0)
    assert torch.equal(row, before)


def test_seating_forgets_the_gradients_of_the_one_before() -> None:
    made = loaded(a_network(), mlp())
    made.setup.task.loss(made.module, FITNESS).backward()
    loaded(made, mlp())
    assert all(parameter.grad is None for parameter in made.parameters)


def test_the_template_is_not_touched_by_work_on_the_bench() -> None:
    made = a_network()
    before = made.setup.genome.read(made.setup.genome.template)[0]
    loaded(made, mlp())
    made.score()
    assert torch.equal(made.setup.genome.read(made.setup.genome.template)[0], before)


# Offspring


def test_an_offspring_is_the_mean_of_its_mates_and_noise_addressed_by_its_id() -> None:
    made = a_network()
    parents = three(made)
    mean = parents.rows[[2, 0]].mean(dim=0)
    plain = build_offspring(made.setup, stack(parents), Birth("1.1.0", mates=(2, 0))).row
    assert torch.equal(plain, mean)
    noisy, again, sibling = (
        build_offspring(made.setup, stack(parents), Birth(id_, (2, 0), 0.1)).row for id_ in ("1.1.0", "1.1.0", "1.1.1")
    )
    noise = torch.randn(mean.shape, generator=made.setup.seeds("noise", "1.1.0"))
    assert torch.equal(noisy, mean + 0.1 * noise)
    assert torch.equal(noisy, again)
    assert not torch.equal(noisy, sibling)


@pytest.mark.parametrize(
    ("rule", "mean"), [(Averaged(), [2.0, 2.0]), (Reestimated(), [2.0, 2.0]), (FromFittest(), [3.0, 3.0])], ids=str
)
def test_floating_buffers_follow_the_rule_and_integers_the_fittest_mate(rule: Any, mean: list[float]) -> None:
    made = a_network(
        lambda: nn.Sequential(nn.Linear(INPUTS, 2), nn.BatchNorm1d(2), nn.Linear(2, CLASSES)), esgd.Recipe(buffers=rule)
    )
    parents = three(made)
    buffers = {
        "1.running_mean": torch.tensor([[1.0, 1.0], [9.0, 9.0], [3.0, 3.0]]),
        "1.running_var": torch.ones(3, 2),
        "1.num_batches_tracked": torch.tensor([4, 5, 6]),
    }
    inherited = build_offspring(
        made.setup, stack(replace(parents, buffers=buffers)), Birth("1.1.0", mates=(2, 0))
    ).buffers
    assert inherited["1.running_mean"].tolist() == mean
    assert int(inherited["1.num_batches_tracked"]) == 6


# BatchNorm


def statistics_by_hand(network: nn.Module, batches: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The mean over batches of their means and unbiased variances before the BatchNorm layer."""
    with torch.no_grad():
        hidden = [network[0](batch) for batch in batches]
    return torch.stack([h.mean(0) for h in hidden]).mean(0), torch.stack([h.var(0) for h in hidden]).mean(0)


@pytest.mark.parametrize(("samples", "used"), [(64, 64), (100, 100), (10_000, 300)])
def test_statistics_are_the_mean_over_the_first_training_batches(samples: int, used: int) -> None:
    made, network = a_network(batchnorm_mlp, esgd.Recipe(buffers=Reestimated(samples=samples))), batchnorm_mlp()
    assert loaded(made, network).calibrate() == used
    mean, variance = statistics_by_hand(network, list(TRAIN[0][:used].chunk(2 if used > 256 else 1)))
    torch.testing.assert_close(made.buffers()["1.running_mean"], mean)
    torch.testing.assert_close(made.buffers()["1.running_var"], variance)


def test_estimating_statistics_twice_gives_the_same_bits_whatever_was_there_before() -> None:
    made, network = a_network(batchnorm_mlp), batchnorm_mlp()
    loaded(made, network).calibrate()
    first = made.buffers()
    with torch.no_grad():
        network[1].running_mean.fill_(100.0)
        network[1].num_batches_tracked.fill_(5)
    loaded(made, network).calibrate()
    assert all(torch.equal(made.buffers()[name], value) for name, value in first.items())


def test_dropout_stays_off_and_momentum_comes_back_while_statistics_are_estimated() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Dropout(0.9), nn.Linear(INPUTS, 7), nn.BatchNorm1d(7, momentum=0.3), nn.Linear(7, CLASSES)
        )

    made, network = a_network(make), make()
    loaded(made, network).calibrate()
    mean, _ = statistics_by_hand(network[1:], list(TRAIN[0].chunk(2)))
    torch.testing.assert_close(made.buffers()["2.running_mean"], mean)
    assert made.module[2].momentum == 0.3


class FrozenNorm(nn.Sequential):
    """Fine-tuning code often keeps pretrained BatchNorm layers in eval mode."""

    def train(self, mode: bool = True) -> FrozenNorm:
        super().train(mode)
        self[1].eval()
        return self


def test_layers_that_the_network_keeps_in_eval_mode_keep_their_statistics() -> None:
    def make() -> nn.Module:
        return FrozenNorm(nn.Linear(INPUTS, 7), nn.BatchNorm1d(7), nn.Linear(7, CLASSES))

    made = a_network(make)
    assert loaded(made, make()).calibrate() == 0
    assert not made.buffers()["1.running_mean"].any()


def test_layers_without_statistics_and_rules_without_samples_cost_nothing() -> None:
    assert loaded(a_network(), mlp()).calibrate() == 0
    assert loaded(a_network(batchnorm_mlp, esgd.Recipe(buffers=Averaged())), batchnorm_mlp()).calibrate() == 0
    stateless = lambda: nn.Sequential(nn.BatchNorm1d(INPUTS, track_running_stats=False), nn.Linear(INPUTS, CLASSES))  # noqa: E731
    assert loaded(a_network(stateless), stateless()).calibrate() == 0


# Fitness


def sums_by_hand(network: nn.Module, parts: list[tuple[Tensor, Tensor]]) -> float:
    with torch.no_grad():
        sums = [float(F.cross_entropy(network(x), y).double() * len(y)) for x, y in parts]
    return sum(sums) / sum(len(y) for _, y in parts)


PARTS = list(zip(FITNESS[0].split(64), FITNESS[1].split(64), strict=True))


def test_the_score_is_the_mean_loss_in_double_sums_bit_for_bit() -> None:
    network = mlp()
    score = loaded(a_network(), network).score()
    assert score.fitness == sums_by_hand(network, PARTS)
    assert (score.complete, score.samples, score.saved) == (True, 250, 0)


def double() -> nn.Module:
    return mlp().double()


def test_visiting_the_hardest_parts_first_gives_the_same_bits() -> None:
    """In double precision, where the order of a sum shows."""
    x, y = random_data(512, seed=2)
    data = (x.double(), y)
    made, networks = a_network(double, train=data, fitness=data), [double() for _ in range(10)]
    fresh = [loaded(a_network(double, train=data, fitness=data), network).score().fitness for network in networks]
    assert [loaded(made, network).score().fitness for network in networks] == fresh


def test_an_evaluation_stops_as_soon_as_the_individual_cannot_be_elite() -> None:
    made = loaded(a_network(), mlp())
    full = made.score().fitness
    stopped = made.score(cutoff=full / 4)
    assert (stopped.complete, stopped.fitness) == (False, torch.inf)
    assert stopped.samples + stopped.saved == 250
    assert stopped.saved > 0
    assert made.score(cutoff=full).fitness == full


def test_nothing_is_stopped_early_where_that_would_be_wrong() -> None:
    made = loaded(a_network(nonnegative=False), mlp())
    made.score()
    assert made.score(cutoff=0.0).complete


def test_a_network_that_is_not_finite_scores_inf_and_costs_one_part() -> None:
    made, network = a_network(), mlp()
    nn.init.constant_(network[0].weight, torch.nan)
    first, second = loaded(made, network).score(), loaded(made, network).score()
    assert (first.fitness, first.complete) == (second.fitness, second.complete) == (torch.inf, True)
    assert second.samples < first.samples == 250


def test_a_loss_below_zero_that_was_said_to_be_nonnegative_is_found() -> None:
    task = esgd.Supervised(
        mlp, lambda output, y: -F.cross_entropy(output, y), train=TRAIN, fitness=FITNESS, nonnegative=True
    )
    made = loaded(Scored(prepare(task, esgd.Recipe(), 0)), mlp())
    with pytest.raises(FitnessError, match="part 0 is -.*nonnegative=False"):
        made.score()


@pytest.mark.parametrize("batch", [(1, [torch.ones(2)], {"x": torch.ones(2), "name": "cat"}), "cat", [torch.ones(1)]])
def test_batches_of_any_structure_reach_the_device_unchanged(batch: Any) -> None:
    moved = a_network().computing.to_device(batch)
    assert type(moved) is type(batch)
    assert str(moved) == str(batch)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


class Several(tuple[Tensor, ...]):
    """A tuple of a type of its own, which has no names."""


@pytest.mark.parametrize(
    "batch",
    [
        Pair(torch.ones(1), torch.ones(1)),
        Several([torch.ones(1), torch.ones(1)]),
        torch.ones(2, 3).max(dim=1),
        torch.Size([2, 3]),
        (pack_sequence([torch.ones(2, 1)]), torch.ones(1)),
    ],
    ids=["pair", "several", "maximum", "size", "packed"],
)
def test_tuples_of_every_type_and_packed_sequences_reach_the_device_unchanged(batch: Any) -> None:
    moved = a_network().computing.to_device(batch)
    assert type(moved) is type(batch)
    assert str(moved) == str(batch)


def test_an_evaluation_is_never_stopped_when_nothing_is_left_to_save() -> None:
    made = loaded(a_network(), mlp())
    full = made.score()
    assert made.score(cutoff=full.fitness * 0.999).saved > 0 or made.score(cutoff=full.fitness * 0.999).complete


def test_an_aborted_evaluation_goes_on_where_it_stopped_and_ends_with_the_same_bits() -> None:
    made = loaded(a_network(), mlp())
    full = made.score()
    stopped = made.score(cutoff=full.fitness / 4)
    finished = made.score(begun=stopped.parts)
    assert finished.fitness == full.fitness
    assert finished.samples == stopped.saved
