"""Survival: who may take the places that are not for elites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import esgd
from esgd.operators import Elitist, anyone, parents_only, trajectories
from esgd.protocols import Role
from esgd.randomness import Seeds
from tests.small import classify, session

roles = st.lists(st.sampled_from(Role), min_size=4, max_size=15)
ADMITS = {
    anyone: {Role.MOVED, Role.PASSED, Role.HELD, Role.IMMIGRANT, Role.OFFSPRING},
    parents_only: {Role.MOVED, Role.PASSED, Role.HELD},
    trajectories: {Role.MOVED, Role.END},
}


@pytest.mark.parametrize("rest", ADMITS, ids=lambda rest: rest.__name__)
def test_the_rest_comes_from_whom_it_says(rest: Callable[[Role], bool]) -> None:
    assert {role for role in Role if rest(role)} == ADMITS[rest]


@pytest.mark.parametrize("rest", ADMITS, ids=lambda rest: rest.__name__)
@given(roles=roles, seed=st.integers(0, 10**6), size=st.integers(2, 4))
def test_others_fill_the_rest_only_where_it_admits_too_few(
    rest: Callable[[Role], bool], roles: list[Role], seed: int, size: int
) -> None:
    fitness = torch.arange(len(roles), dtype=torch.float64)
    chosen = Elitist(rest=rest)(fitness, roles, size=size, elites=1, generator=Seeds(seed)())
    assert chosen[0] == 0, "the elites come first, whatever their role"
    assert len(set(chosen)) == size
    admitted = [i for i in range(1, len(roles)) if rest(roles[i])]
    taken = [i for i in chosen[1:] if rest(roles[i])]
    assert len(taken) == min(size - 1, len(admitted))


def test_elites_are_in_order_of_fitness() -> None:
    fitness = torch.tensor([5.0, 1.0, 4.0, 2.0, 3.0], dtype=torch.float64)
    chosen = Elitist()(fitness, [Role.HELD] * 5, size=4, elites=3, generator=Seeds(0)())
    assert chosen[:3] == [1, 3, 4]


def test_with_as_many_elites_as_places_nothing_is_left_to_chance() -> None:
    fitness = torch.tensor([5.0, 1.0, 4.0, 2.0], dtype=torch.float64)
    chosen = [Elitist()(fitness, [Role.HELD] * 4, size=3, elites=3, generator=Seeds(i)()) for i in range(5)]
    assert chosen == [[1, 3, 2]] * 5


def test_a_fitness_that_is_not_finite_is_never_preferred() -> None:
    fitness = torch.tensor([torch.inf, 3.0, torch.nan, 2.0], dtype=torch.float64)
    assert Elitist()(fitness, [Role.HELD] * 4, size=2, elites=2, generator=Seeds(0)()) == [3, 1]


def test_only_trajectories_ask_for_the_ends_of_backed_off_walks() -> None:
    assert Elitist(rest=trajectories).wants_ends
    assert not Elitist(rest=anyone).wants_ends
    assert not Elitist(rest=parents_only).wants_ends
    assert not Elitist().wants_ends


def test_a_function_of_ones_own_decides_the_rest() -> None:
    def newcomers(role: Role) -> bool:
        return role is Role.OFFSPRING

    roles = [Role.HELD, Role.HELD, Role.OFFSPRING, Role.OFFSPRING, Role.HELD]
    fitness = torch.arange(5, dtype=torch.float64)
    for seed in range(10):
        chosen = Elitist(rest=newcomers)(fitness, roles, size=3, elites=1, generator=Seeds(seed)())
        assert set(chosen) == {0, 2, 3}


def test_the_end_of_a_backed_off_walk_is_nobodys_mate() -> None:
    """It may go on, but the next generation descends from places that were accepted."""
    recipe = esgd.Recipe(population=3, offspring=100, survival=Elitist(rest=trajectories))
    with session(classify(), recipe) as open_:
        genome = open_.setup.genome
        everyone = replace(
            esgd.Population.founders(genome, torch.zeros(5, genome.size), {}),
            fitness=torch.tensor([3.0, 4.0, 5.0, 1.0, 2.0], dtype=torch.float64),
        )
        roles = [Role.MOVED, Role.HELD, Role.IMMIGRANT, Role.END, Role.END]
        state = esgd.State(0, everyone, everyone.champion)
        births = recipe.breed(everyone, roles, next(recipe.stages()), state, v=1, session=open_, seeds=Seeds(0))
    assert {mate for birth in births for mate in birth.mates} == {0, 1, 2}
