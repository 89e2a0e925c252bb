"""The Loop engine: one individual after another, exactly, and without a trace outside."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import esgd
from esgd._algorithm.initialization import prepare, scored
from esgd.engines.computing import torch_threads
from esgd.errors import RecipeError
from esgd.operators import Carried, CarriedByMate, Fresh, PerGeneration, RandomStart
from esgd.policies import Policy
from esgd.population import Birth, Population
from esgd.protocols import Scores, Session, Step
from tests.small import batchnorm_mlp, classify, dropout_mlp, mlp, random_data, true_fitness

GOOD, BAD = Policy(optimizer="sgd", hyper={"lr": 0.1, "momentum": 0.9}), Policy(optimizer="sgd", hyper={"lr": 1e38})
STEP = Step(k=1, epochs=1, backoff=PerGeneration(), total=2)
FITNESS = random_data(48)


@contextmanager
def at_work(
    make_model: Callable[[], nn.Module] = mlp, size: int = 3, **recipe: Any
) -> Iterator[tuple[Session, Population]]:
    setup = prepare(classify(make_model, fitness=FITNESS), esgd.Recipe(**recipe), 0)
    with esgd.Loop(threads=1).open(setup, lambda *tick: None) as shop:
        yield shop, scored(shop, RandomStart()(setup.task, setup.genome, shop, size, setup.seeds.at("init")))


def test_whoever_improves_moves_and_whoever_diverges_stays_with_its_old_policy() -> None:
    with at_work(size=2) as (shop, start):
        trained = shop.train(start, [GOOD, BAD], STEP)
    assert trained.moved.tolist() == [True, False]
    assert trained.refused.tolist() == [0, 1]
    assert trained.diverged.tolist() == [False, True]
    assert trained.population.policies == (GOOD, None)
    assert torch.equal(trained.population.rows[1], start.rows[1])
    assert trained.population.fitness[0] < start.fitness[0]
    assert trained.population.births == start.births


@pytest.mark.parametrize("make_model", [mlp, batchnorm_mlp, dropout_mlp])
def test_the_fitness_of_everybody_is_that_of_the_network_they_hand_out(make_model: Any) -> None:
    with at_work(make_model) as (shop, start):
        trained = shop.train(start, [GOOD] * 3, STEP).population
        births = [Birth(f"1.1.{i}", (i, (i + 1) % 3), 0.05) for i in range(3)]
        united = shop.unite(trained, births, shop.evaluate(trained, births), [3, 1, 5, 0])
    for population in (start, trained, united):
        for j in range(len(population)):
            assert population[j].best.fitness == pytest.approx(
                true_fitness(population[j].best.module(), FITNESS), rel=1e-6
            )


def test_uniting_keeps_the_order_and_gives_offspring_their_fittest_mates_policy() -> None:
    with at_work() as (shop, start):
        trained = shop.train(start, [GOOD, BAD, GOOD], STEP).population
        births = [Birth("1.1.0", (2, 1)), Birth("1.1.1", (1, 2))]
        scores = shop.evaluate(trained, births)
        united = shop.unite(trained, births, scores, [4, 0, 3])
    assert [birth.id for birth in united.births] == ["1.1.1", "0.0.0", "1.1.0"]
    assert united.policies == (None, GOOD, GOOD)
    assert united.fitness.tolist() == [float(scores.fitness[1]), float(trained.fitness[0]), float(scores.fitness[0])]
    assert torch.equal(united.rows[1], trained.rows[0])


@pytest.mark.parametrize(
    ("baggage", "kept"),
    [(Fresh(), [False, False]), (Carried(), [True, False]), (CarriedByMate(), [True, True])],
    ids=str,
)
def test_optimizer_state_travels_as_the_baggage_rule_says(baggage: Any, kept: list[bool]) -> None:
    with at_work(baggage=baggage) as (shop, start):
        trained = shop.train(start, [GOOD] * 3, STEP).population
        births = [Birth("1.1.0", (0, 1))]
        united = shop.unite(trained, births, Scores.unknown(1), [0, 3])
    assert [each is not None for each in united.optimizer_states] == kept


def test_an_aborted_offspring_that_survives_is_evaluated_to_the_end() -> None:
    with at_work() as (shop, start):
        births = [Birth("1.1.0", (0, 1), 0.5)]
        full = shop.evaluate(start, births).fitness
        united = shop.unite(start, births, Scores.unknown(1), [3])
    assert torch.equal(united.fitness, full)


def test_ends_of_walks_that_backed_off_are_kept_only_where_wanted_and_finite() -> None:
    slightly_worse = Policy(optimizer="sgd", hyper={"lr": 100.0})
    with at_work() as (shop, start):
        plain = shop.train(start, [slightly_worse, BAD, GOOD], STEP)
        keeping = shop.train(
            start, [slightly_worse, BAD, GOOD], Step(k=1, epochs=1, backoff=PerGeneration(), keep_ends=True)
        )
    assert len(plain.ends) == 0
    assert len(keeping.ends) == 1
    assert keeping.ends.fitness[0] > start.fitness[0]
    assert keeping.ends.policies == (slightly_worse,)
    assert keeping.ends.best.fitness == pytest.approx(true_fitness(keeping.ends.best.module(), FITNESS), rel=1e-6)


def test_a_whole_run_leaves_the_callers_generators_and_threads_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()  # noqa: NPY002
    list(
        esgd.evolve(
            classify(dropout_mlp), esgd.Recipe(population=2, generations=1), seed=0, engine=esgd.Loop(threads=2)
        )
    )
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_threads_come_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with suppress(ZeroDivisionError), torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_a_device_that_is_not_here_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="device='nonsense' cannot be used here.*Use device='cpu'"):
        esgd.Loop(device="nonsense")


def test_something_that_is_no_engine_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="engine=3"):
        list(esgd.evolve(classify(), esgd.Recipe(population=2, generations=1), seed=0, engine=3))
