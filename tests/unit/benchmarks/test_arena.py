"""The arena's table: paired differences, ranks and spent work, from runs whose results are known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.arena.__main__ import compete
from benchmarks.arena.standings import page, paired


def run(rules: str, seed: int, test: float, fitness: float = 1.0, spent: float = 1.0) -> dict[str, Any]:
    return {"rules": rules, "task": "t", "seed": seed, "test": test, "fitness": fitness, "spent": spent}


RUNS = [
    *(run("ours", seed, test) for seed, test in enumerate((0.9, 0.8, 1.1))),
    *(run("pbt", seed, test, fitness=2.0, spent=0.99) for seed, test in enumerate((1.0, 1.0, 1.0))),
]


def test_differences_are_paired_by_seed_in_percent_of_the_arm() -> None:
    found = paired(RUNS, "pbt", "test")
    assert found.mean == pytest.approx(-100 * 0.2 / 3)
    assert (found.wins, found.pairs) == (2, 3)
    assert str(paired(RUNS, "pbt", "fitness")) == "-50.0 ± 0.0 (3/3)"


def test_an_arm_that_was_not_run_on_a_seed_is_not_compared_there() -> None:
    assert paired(RUNS[:2] + RUNS[3:], "pbt", "test").pairs == 2


def test_the_table_has_the_best_rank_first_and_says_what_was_spent() -> None:
    first, second = page(RUNS).splitlines()[4:]
    assert first.startswith("| `ours` | 100.0% to 100.0% | 1.33 | 0.9333 |")
    assert second.startswith("| `pbt` | 99.0% to 99.0% | 1.67 | 1.0000 | -6.7 ± ")


def test_a_run_of_the_arena_tells_what_it_spent_and_how_good_it_is() -> None:
    found = compete("digits", "halving", seed=100, epochs=4)
    assert found["spent"] == pytest.approx(1.0, rel=0.02)
    assert 0 < found["test"] < 2.5
    assert 0 <= found["error"] < 0.9
