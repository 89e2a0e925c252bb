"""Policies that are handed down."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import exp, inf, log, nan
from typing import Any

import pytest

import esgd
from esgd.errors import RecipeError
from esgd.operators import BestOfLooks, Gaussian, Uninterrupted
from esgd.schedules import Cosine
from esgd.species import Adam, Inherited, Sgd
from tests.small import ask, classify

POOL = Sgd(lr=(0.1, 0.5), gamma=0.5)
KNOWN = esgd.Policy(
    optimizer="adamw",
    hyper={"lr": 0.02 * 0.25, "weight_decay": 0.3},
    settings={"batch_size": 8},
    schedule=Cosine(),
    annealing=0.25,
    clip_norm=2.0,
)


def test_without_a_policy_to_inherit_a_fresh_one_is_drawn() -> None:
    assert Inherited(species=POOL, probability=1.0)(ask(2, 3)) == POOL(ask(2, 3))


def test_a_policy_is_inherited_with_its_probability() -> None:
    drawn = Counter(Inherited(species=POOL)(ask(2, j, inherited=KNOWN)).optimizer for j in range(1000))
    assert drawn["adamw"] / 1000 == pytest.approx(0.7, abs=0.05)
    never = {Inherited(species=POOL, probability=0)(ask(2, j, inherited=KNOWN)).optimizer for j in range(50)}
    assert never == {"sgd"}


def test_what_is_not_inherited_is_exactly_the_fresh_draw() -> None:
    """Paired arms: inheritance changes who inherits, not what the others draw."""
    for j in range(50):
        policy = Inherited(species=POOL, probability=0.5)(ask(2, j, inherited=KNOWN))
        assert policy.optimizer == "adamw" or policy == POOL(ask(2, j))


def test_the_rate_is_shaken_and_annealed_anew_and_everything_else_is_kept() -> None:
    species = Inherited(species=POOL, probability=1.0, jitter=0.4)
    shakes = []
    for j in range(500):
        policy = species(ask(3, j, inherited=KNOWN))
        assert policy.annealing == 0.5**3
        shakes.append(log(policy.hyper["lr"] / 0.5**3 / 0.02))
        assert (policy.optimizer, policy.hyper["weight_decay"]) == ("adamw", 0.3)
        assert (policy.settings, policy.schedule, policy.clip_norm) == ({"batch_size": 8}, Cosine(), 2.0)
    assert -0.4 <= min(shakes) < -0.38
    assert 0.38 < max(shakes) <= 0.4
    assert sum(shakes) / 500 == pytest.approx(0, abs=0.04)


def test_without_jitter_only_the_annealing_changes() -> None:
    policy = Inherited(species=POOL, probability=1.0, jitter=0)(ask(4, inherited=KNOWN))
    assert policy.hyper["lr"] == pytest.approx(0.02 * 0.5**4)


def test_the_rate_is_clipped_before_it_is_annealed() -> None:
    species = Inherited(species=POOL, probability=1.0, jitter=1.0, clip=(0.018, 0.025))
    rates = [species(ask(1, j, inherited=KNOWN)).hyper["lr"] / 0.5 for j in range(100)]
    assert min(rates) == 0.018
    assert max(rates) == 0.025
    assert len(set(rates)) > 2


def test_whoever_inherits_goes_on_with_the_policy_on_record() -> None:
    recipe = esgd.Recipe(
        population=6,
        generations=4,
        sgd_epochs=1,
        species=Inherited(species=Adam(lr=(1e-3, 1e-2), gamma=1.0), probability=1.0, jitter=0.0),
    )
    generations = list(esgd.evolve(classify(), recipe, seed=0))
    for before, after in pairwise(generations):
        for known, policy in zip(before.population.policies, after.policies, strict=True):
            assert known is None or policy == known
    inherited = [known for generation in generations[:-1] for known in generation.population.policies]
    assert any(inherited), "nobody had anything to inherit"


def test_a_survivor_keeps_its_own_policy_and_an_offspring_its_fittest_mates() -> None:
    recipe = esgd.Recipe(population=6, elites=3, generations=1, sgd_epochs=1, mutation=Gaussian(sigma=0.3))
    (generation,) = esgd.evolve(classify(), recipe, seed=0)
    accepted = {
        id_: policy if moved else None
        for (id_, _), policy, moved in zip(generation.before, generation.policies, generation.accepted, strict=True)
    }
    assert len(set(map(str, accepted.values()))) > 3, "too much alike to tell mates apart"
    population = generation.population
    assert {len(birth.parents) for birth in population.births} == {0, 2}, "parents and offspring are both there"
    for birth, policy in zip(population.births, population.policies, strict=True):
        assert policy == accepted[birth.parents[0] if birth.parents else birth.id]


@pytest.mark.parametrize("returned", [False, True])
def test_a_policy_that_led_nowhere_is_changed_where_sgd_begins_again(returned: bool) -> None:
    pool = Inherited(species=Adam(lr=(1e-4, 0.5), gamma=1.0), probability=1.0, offspring_only=True, returned=returned)
    recipe = esgd.Recipe(
        population=6,
        offspring=0,
        mates=1,
        generations=6,
        sgd_epochs=3,
        species=pool,
        backoff=BestOfLooks(),
        baggage=Uninterrupted(returns=True),
    )
    kept = {True: 0, False: 0}
    for before, after in pairwise(esgd.evolve(classify(), recipe, seed=0, engine="loop")):
        for moved, known, policy in zip(before.accepted, before.population.policies, after.policies, strict=True):
            if known is not None:
                assert policy == known or (returned and not moved)
                kept[moved] += policy == known
    assert kept[True], "no trajectory has continued"
    assert bool(kept[False]) is not returned


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"probability": -0.1}, r"probability=-0.1 is not in \[0, 1\].*Use 0 for the paper's rule, a fresh draw every"),
        ({"probability": 1.1}, r"probability=1.1 is not in \[0, 1\]"),
        ({"probability": nan}, r"probability=nan is not in \[0, 1\]"),
        ({"probability": "x"}, "probability='x' is not a number"),
        ({"jitter": -1}, "jitter=-1 is below 0.*Use 0 to keep it"),
        ({"jitter": inf}, "jitter=inf is not a finite number"),
        ({"clip": (0.2, 0.1)}, r"low=0.2 exceeds high=0.1. clip=\(0.2, 0.1\)"),
        ({"clip": (-1, 1)}, "low=-1 is below 0"),
        ({"clip": (0.1,)}, r"clip=\(0.1,\) is not a range.*Use None for no limit"),
        ({"clip": 0.1}, "clip=0.1 is not a list"),
        ({"returned": None}, "returned=None is neither true nor false"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Inherited(species=POOL, **given)


def test_a_clip_may_be_open_above() -> None:
    rates = [
        Inherited(species=POOL, probability=1.0, clip=(0.02, inf))(ask(1, j, inherited=KNOWN)).hyper["lr"] / 0.5
        for j in range(50)
    ]
    assert min(rates) == 0.02 < max(rates)


def test_jitter_is_in_units_of_the_logarithm() -> None:
    species: Any = Inherited(species=POOL, probability=1.0, jitter=0.1)
    rates = [species(ask(1, j, inherited=KNOWN)).hyper["lr"] / 0.5 / 0.02 for j in range(200)]
    assert exp(-0.1) <= min(rates) * (1 + 1e-12)
    assert max(rates) <= exp(0.1) * (1 + 1e-12)
