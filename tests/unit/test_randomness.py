"""Randomness is addressed, not consumed."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import esgd
from esgd.errors import RecipeError
from esgd.randomness import Seeds, brief_randomness, global_randomness
from tests.small import classify, dropout_mlp

address = st.lists(st.integers(-5, 1000) | st.text("abc./ ", max_size=4), max_size=4).map(tuple)


@given(st.integers(), address, address)
def test_an_address_is_the_whole_path_however_it_is_walked(root: int, first: tuple, second: tuple) -> None:
    whole = Seeds(root).integer(*first, *second)
    assert Seeds(root).at(*first).integer(*second) == whole
    assert Seeds(root).at(*first, *second).integer() == whole
    assert Seeds(root).at(*first)(*second).initial_seed() == whole
    assert 0 <= whole < 2**63


@given(st.sets(address, min_size=2, max_size=20), st.integers())
def test_different_addresses_have_different_streams(addresses: set[tuple], root: int) -> None:
    assert len({Seeds(root).integer(*path) for path in addresses}) == len(addresses)


def test_a_word_and_a_number_are_different_addresses() -> None:
    seeds = Seeds(0)
    assert seeds.integer("1") != seeds.integer(1)
    assert seeds.integer(1, 23) != seeds.integer(12, 3)
    assert seeds.integer("ab", "c") != seeds.integer("a", "bc")


def test_asking_twice_gives_the_same_stream_and_nothing_is_used_up() -> None:
    seeds = Seeds(7)
    first = torch.rand(3, generator=seeds("mutate", 1))
    torch.rand(100, generator=seeds("mutate", 2))
    assert torch.equal(torch.rand(3, generator=seeds("mutate", 1)), first)


def test_the_numbers_are_these_on_every_machine_and_for_ever() -> None:
    """A changed hash would silently change every published run."""
    assert Seeds(0).integer() == 7210762507766007076
    assert Seeds(0).integer("noise", "1.1.0") == 6209994275285686017
    assert Seeds(2018).at("sgd", 3, 1).integer("data", 0, "order") == 1116682385065897524


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def draw_all() -> tuple[float, float, float]:
    """One number of each global generator that a user's code may draw from."""
    return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002


def test_global_generators_are_lent_and_given_back() -> None:
    seed_all(1)
    expected = draw_all()
    seed_all(1)
    with global_randomness(5):
        inside = draw_all()
    assert draw_all() == expected
    with global_randomness(5):
        assert draw_all() == inside
    assert not set(inside) & set(expected)


def test_global_generators_are_given_back_after_an_error() -> None:
    def fails() -> None:
        with global_randomness(5):
            draw_all()
            raise ZeroDivisionError

    seed_all(1)
    expected = draw_all()
    seed_all(1)
    with pytest.raises(ZeroDivisionError):
        fails()
    assert draw_all() == expected


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 2])
def test_a_run_that_goes_on_from_a_state_is_the_run_that_never_stopped(stop: int) -> None:
    recipe = esgd.Recipe(population=3, generations=4, sgd_epochs=2)
    whole = list(esgd.evolve(classify(dropout_mlp), recipe, seed=5))
    torch.manual_seed(99)
    rest = list(esgd.evolve(classify(dropout_mlp), recipe, seed=5, resume=whole[stop - 1].state))
    assert [generation.k for generation in rest] == list(range(stop + 1, 5))
    for before, after in zip(whole[stop:], rest, strict=True):
        assert torch.equal(before.population.rows, after.population.rows)
        assert torch.equal(before.population.fitness, after.population.fitness)
        assert before.population.births == after.population.births
        assert before.policies == after.policies
        assert before.guarantee == after.guarantee
    assert len(rest[-1].state.history) == 4


def test_another_seed_is_another_run() -> None:
    recipe = esgd.Recipe(population=2, generations=1, sgd_epochs=1)
    one, other = (next(esgd.evolve(classify(), recipe, seed=seed)) for seed in (0, 1))
    assert not torch.equal(one.population.rows, other.population.rows)
    assert one.policies != other.policies


@pytest.mark.parametrize("seed", ["0", 1.5, None, True])
def test_a_seed_that_is_no_whole_number_is_refused(seed: object) -> None:
    with pytest.raises(RecipeError, match="is not a whole number. All randomness of a run is derived.*Use seed=0"):
        next(esgd.evolve(classify(), esgd.Recipe(population=2), seed=seed))


def test_a_brief_loan_draws_what_a_long_one_does_and_gives_everything_back() -> None:
    def drawn() -> tuple[float, float, float]:
        return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002

    with global_randomness(7):
        long = drawn()
    with global_randomness(1):
        expected = [drawn(), drawn()]
    with global_randomness(1):
        first = drawn()
        with brief_randomness(7):
            brief = drawn()
            with brief_randomness(8):
                drawn()
        second = drawn()
    assert brief == long
    assert [first, second] == expected
    before = np.random.get_state()  # noqa: NPY002
    with brief_randomness(7):  # outside of a long one
        assert drawn() == long
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
