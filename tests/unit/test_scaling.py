"""What `explain --workers` says: four terms, none of which can be wished away."""

from __future__ import annotations

import pytest

from esgd import Recipe
from esgd.scaling import DRIVER, PROCESS, Workers, generation

RECIPE = Recipe(population=100, offspring=400, sgd_epochs=2)


def told(count: int, **settings: float) -> dict[str, float]:
    workers = Workers(count, per_node=10, gigabits=8.0)
    costs = {"row": 4_000_000, "individual": 30.0, "evaluation": 2.0, **settings}
    return generation(RECIPE, row=int(costs.pop("row")), workers=workers, **costs)


def test_one_worker_does_everything_one_after_another() -> None:
    assert told(1)["sgd"] == 100 * 30.0
    assert told(1)["breeding"] == 400 * 2.0


def test_beyond_an_individual_each_nothing_is_gained() -> None:
    assert told(100)["sgd"] == told(1000)["sgd"] == 30.0
    assert told(99)["sgd"] == 60.0, "somebody has two, and everybody waits"


def test_parents_go_to_every_node_whatever_the_number_of_offspring() -> None:
    few, many = told(10), told(1000)
    assert few["bytes_moved"] == 4_000_000 * (2 * 100 + 100 * 2)
    assert many["bytes_moved"] == 4_000_000 * (2 * 100 + 100 * 101)
    assert many["network"] == pytest.approx(many["bytes_moved"] / 1e9)


def test_the_driver_does_not_get_faster() -> None:
    assert told(1)["driver"] == told(1000)["driver"] == 100 * DRIVER


def test_the_whole_is_the_sum() -> None:
    costs = told(7)
    assert costs["seconds"] == pytest.approx(sum(costs[term] for term in ("sgd", "breeding", "driver", "network")))


def test_a_node_has_room_for_its_processes_their_rows_and_all_parents() -> None:
    assert told(1000)["memory_per_node"] == 10 * PROCESS + 4_000_000 * (10 * 7 + 100)
    assert told(1, row=4)["memory_per_node"] > 250e6, "however small the network is"
