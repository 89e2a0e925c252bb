"""The population: values in an order that Eq. 8 and Definition 1 give."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from esgd.genome import Genome
from esgd.policies import Policy
from esgd.population import Birth, Population

FITNESS = st.lists(st.floats(0, 10) | st.just(torch.inf), min_size=1, max_size=12)


def population(fitness: list[float]) -> Population:
    """Row j is filled with j."""
    genome, n = Genome.of(nn.BatchNorm1d(2)), len(fitness)
    rows = torch.arange(float(n))[:, None].expand(n, genome.size).clone()
    buffers = {
        "running_mean": torch.arange(float(n))[:, None].expand(n, 2).clone(),
        "running_var": torch.ones(n, 2),
        "num_batches_tracked": torch.arange(n),
    }
    policies = tuple(Policy(optimizer="sgd", hyper={"lr": float(j)}) for j in range(n))
    births = tuple(Birth(f"2.1.{j}", founder=j // 2) for j in range(n))
    return Population(genome, rows, buffers, torch.tensor(fitness, dtype=torch.float64), births, policies, (None,) * n)


@given(FITNESS)
def test_ranked_is_sorted_and_the_earlier_wins_a_tie(fitness: list[float]) -> None:
    assert population(fitness).order == sorted(range(len(fitness)), key=lambda j: (fitness[j], j))
    assert population(fitness).ranked.fitness.tolist() == sorted(fitness)


@given(FITNESS, st.data())
def test_the_elite_mean_is_the_mean_of_the_m_best(fitness: list[float], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(fitness)))
    assert population(fitness).elite_mean(m) == pytest.approx(sum(sorted(fitness)[:m]) / m)


def test_a_diverged_or_unknown_fitness_is_never_the_best() -> None:
    assert population([torch.nan, torch.inf, 3.0]).best.index == 2


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (2, [2]),
        (-1, [3]),
        (slice(1, 3), [1, 2]),
        ([3, 0, 0], [3, 0, 0]),
        (torch.tensor([1, 3]), [1, 3]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        ([], []),
    ],
)
def test_indexing_takes_everything_of_an_individual_along(index: object, expected: list[int]) -> None:
    some = population([0.4, 0.3, 0.2, 0.1])[index]
    assert some.rows[:, 0].tolist() == expected
    assert some.fitness.tolist() == [[0.4, 0.3, 0.2, 0.1][j] for j in expected]
    assert some.buffers["num_batches_tracked"].tolist() == expected
    assert [birth.id for birth in some.births] == [f"2.1.{j}" for j in expected]
    assert [policy.hyper["lr"] for policy in some.policies] == expected
    assert len(some) == len(some.optimizer_states) == len(expected)


def test_what_is_taken_out_is_a_copy() -> None:
    whole = population([0.2, 0.1])
    whole.ranked.rows.zero_()
    whole[[1]].buffers["running_mean"].zero_()
    assert whole.rows[1, 0] == 1.0
    assert whole.buffers["running_mean"][1, 0] == 1.0


def test_joining_keeps_the_order_and_joining_nobody_changes_nothing() -> None:
    a, b = population([0.2, 0.1]), population([0.5, 0.4])[[1]]
    both = a.join(b)
    assert both.fitness.tolist() == [0.2, 0.1, 0.4]
    assert both.buffers["num_batches_tracked"].tolist() == both.rows[:, 0].tolist() == [0, 1, 1]
    assert [birth.id for birth in both.births] == ["2.1.0", "2.1.1", "2.1.1"]
    assert [policy.hyper["lr"] for policy in both.policies] == [0.0, 1.0, 1.0]
    assert len(both.optimizer_states) == 3
    assert a.join(b[[]]).fitness.tolist() == [0.2, 0.1]
    assert a[[]].join(b).fitness.tolist() == [0.4]


def test_the_best_individual_is_an_ordinary_network_with_its_parameters_and_buffers() -> None:
    best = population([0.3, 0.1, 0.2]).best
    network = best.module()
    assert (best.fitness, best.birth.id, best.policy.hyper["lr"]) == (0.1, "2.1.1", 1.0)
    assert network.weight.tolist() == [1.0, 1.0]
    assert network.running_mean.tolist() == [1.0, 1.0]
    assert int(network.num_batches_tracked) == 1
    assert not network.training


def test_diversity_is_the_root_mean_square_of_all_distances() -> None:
    rows = torch.randn(7, 20_000, generator=torch.Generator().manual_seed(0))
    whole = replace(population([0.1] * 7), rows=rows)
    assert whole.diversity == pytest.approx(float(torch.pdist(rows.double()).square().mean().sqrt()))
    assert whole[[3]].diversity == 0.0


def test_diversity_leaves_out_whoever_diverged() -> None:
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    rows[2] = torch.nan
    whole = replace(population([1.0, 2.0, torch.inf]), rows=rows)
    assert whole.diversity == pytest.approx(float((rows[0] - rows[1]).double().norm()))


def test_founders_alive_counts_lines_of_descent() -> None:
    whole = population([0.1] * 5)
    assert whole.founders_alive == 3
    assert whole[[0, 1]].founders_alive == 1


def test_an_initial_population_has_no_fitness_and_no_policies_yet() -> None:
    genome = Genome.of(nn.Linear(2, 1))
    founders = Population.founders(genome, torch.zeros(3, genome.size), {})
    assert founders.fitness.isnan().all()
    assert [birth.id for birth in founders.births] == ["0.0.0", "0.0.1", "0.0.2"]
    assert [birth.founder for birth in founders.births] == [0, 1, 2]
    assert founders.policies == founders.optimizer_states == (None, None, None)
    immigrants = Population.founders(genome, torch.zeros(2, genome.size), {}, step=1)
    assert {birth.founder for birth in immigrants.births}.isdisjoint(birth.founder for birth in founders.births)


def test_a_birth_knows_its_generation_and_its_line_in_the_history() -> None:
    birth = Birth("12.1.3", mates=(4, 0), sigma=0.01, parents=("11.1.2", "0.0.0"), founder=7)
    assert birth.generation == 12
    assert birth.record() == {"id": "12.1.3", "parents": ["11.1.2", "0.0.0"], "sigma": 0.01, "founder": 7}


def test_it_prints_its_size_and_its_best() -> None:
    assert repr(population([0.3, 0.125])) == "Population(2 × 4 parameters, best 0.125)"
    assert repr(population([0.3])[[]]) == "Population(0 × 4 parameters)"
