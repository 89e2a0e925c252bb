"""The record of a generation, and the state a run goes on from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import esgd
from esgd.generation import Generation, finite, read_past
from esgd.operators import Never
from esgd.policies import Policy
from esgd.schedules import Cosine
from esgd.species import Adam, Mixture, Sgd, Uniform
from tests.small import classify, random_data

DESIGN = {
    *("k", "best", "elite_mean", "mean", "fitness", "elites", "offspring_among_elites", "backed_off", "diverged"),
    *("leader", "policies", "births", "ledger", "seconds", "guarantee"),
}
RECIPE = esgd.Recipe(population=4, offspring=6, elites=2, generations=2, sgd_epochs=1)


@pytest.fixture(scope="module")
def generations() -> list[Generation]:
    species = Mixture(species=(Sgd(lr=(0.01, 0.5), schedule=Cosine()), Adam(lr=Uniform(1e-3, 1e-2), clip_norm=1.0)))
    return list(esgd.evolve(classify(test=random_data(30, seed=2)), replace(RECIPE, species=species), seed=0))


def test_a_generation_prints_as_one_line_with_the_leader(generations: list[Generation]) -> None:
    text = str(generations[0])
    assert text.startswith(f"k=1  best {generations[0].best.fitness:.4g}  elites ")
    assert "offspring among elites" in text
    assert "\n" not in text
    first = generations[0]
    state = replace(first.state, archive=replace(first.state.archive, policies=(None,)))
    untrained = replace(first, population=replace(first.population, policies=(None,) * 4), state=state)
    assert str(untrained).endswith("leader untrained")


def test_the_record_has_every_name_that_others_rely_on_and_is_json(generations: list[Generation]) -> None:
    record = generations[-1].record()
    assert set(record) >= DESIGN
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert set(record["ledger"]) == {"sgd_forward", "sgd_backward", "fitness_sgd", "fitness_evolution", "fitness_saved"}
    assert set(record["seconds"]) == {"sgd", "fitness", "evolution", "checkpoint", "other"}


def test_the_record_says_what_the_population_says(generations: list[Generation]) -> None:
    for each in generations:
        record, fitness = each.record(), each.population.fitness
        assert record["best"] == float(fitness.min())
        assert record["elite_mean"] == each.elite_mean == float(fitness.sort().values[:2].mean())
        assert record["fitness"] == fitness.tolist()
        assert record["offspring_among_elites"] == sum(b.generation == each.k for b in each.population.births[:2]) / 2
        assert record["test"]["loss"] > 0


def test_the_line_of_a_policy_says_how_it_fared(generations: list[Generation]) -> None:
    first, second = generations
    for each, policy, birth, before in zip(
        second.record()["policies"], second.policies, first.population.births, first.population.fitness, strict=True
    ):
        assert each["id"] == birth.id
        assert each["optimizer"] == policy.optimizer
        assert each["lr"] == policy.hyper["lr"]
        assert each["before"] == float(before)
        assert each["after"] <= each["before"]


def test_what_is_not_finite_becomes_null() -> None:
    assert [finite(value) for value in (0.5, float("nan"), float("inf"))] == [0.5, None, None]


def test_the_past_comes_back_from_the_history_with_every_policy(generations: list[Generation]) -> None:
    past = generations[-1].state.past
    assert read_past(generations[-1].state.history) == past
    assert [fared.k for fared in past] == [1] * 4 + [2] * 4
    assert [fared.policy for fared in past] == [*generations[0].policies, *generations[1].policies]
    assert [fared.accepted for fared in past[:4]] == list(generations[0].accepted)


def test_the_past_reads_a_fitness_that_was_not_finite_as_inf() -> None:
    line = {
        "k": 1,
        "policies": [{"id": "0.0.0", "optimizer": "sgd", "lr": 0.1, "before": 0.5, "after": None, "accepted": True}],
    }
    (fared,) = read_past([line])
    assert fared.after == float("inf")
    assert fared.policy == Policy(optimizer="sgd", hyper={"lr": 0.1})


def test_the_archive_keeps_the_best_ever_seen_when_a_run_without_back_off_gets_worse() -> None:
    recipe = replace(RECIPE, backoff=Never(), offspring=0, generations=3, species=Sgd(lr=1e4, gamma=1.0))
    *_, last = esgd.evolve(classify(), recipe, seed=0)
    assert last.guarantee == "waived"
    assert last.best.fitness > last.state.archive.best.fitness
    assert last.state.archive.best.birth.id.startswith("0.0.")
