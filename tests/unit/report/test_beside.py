"""Runs side by side: what is a seed of what, and what may be compared."""

from __future__ import annotations

from typing import Any

from esgd.report.beside import Run, cautions, grouped, paired_table, reached_table
from tests.unit.watch.histories import line


def run(name: str, seed: int, *, recipe: int = 1, data: str = "", best: float = 0.5) -> Run:
    manifest: dict[str, Any] = {"seed": seed, "recipe": {"population": recipe}, "data": data or f"of seed {seed}"}
    return Run(name, manifest, [line(1, best=1.0), line(2, best=best)])


def test_runs_of_one_recipe_are_seeds_of_the_same() -> None:
    groups = grouped([run("a", 0), run("b", 1), run("c", 0, recipe=2)])
    assert {name: [each.name for each in runs] for name, runs in groups.items()} == {"a": ["a", "b"], "c": ["c"]}


def test_the_same_seed_again_is_no_new_seed() -> None:
    assert list(grouped([run("a", 0), run("again", 0)])) == ["a", "again"]


def test_differences_are_paired_by_seed() -> None:
    ours = [run("a0", 0, best=0.5), run("a1", 1, best=0.2), run("a2", 2, best=0.1)]
    theirs = [run("b1", 1, recipe=2, best=0.4), run("b0", 0, recipe=2, best=0.4)]
    (row,) = paired_table(grouped([*ours, *theirs])).rows
    assert row[0] == "a0 − b1"
    assert row[1].startswith("-0.05 [")
    assert row[1].endswith("1 of 2")


def test_recipes_without_a_common_seed_are_not_paired() -> None:
    (row,) = paired_table(grouped([run("a", 0), run("b", 1, recipe=2)])).rows
    assert row[1:] == ("–", "–")


def test_one_seed_each_is_said_to_prove_nothing() -> None:
    assert any("may be luck" in said for said in cautions(grouped([run("a", 0), run("b", 0, recipe=2)])))
    both = [run("a", 0), run("a1", 1), run("b", 0, recipe=2), run("b1", 1, recipe=2)]
    assert cautions(grouped(both)) == []


def test_other_data_are_no_comparison() -> None:
    (said, *_) = cautions(grouped([run("a", 0, data="x"), run("b", 0, recipe=2, data="y")]))
    assert said == "b had other data than a: their fitness cannot be compared."


def test_runs_that_go_on_are_named() -> None:
    going = run("a", 0)
    going.manifest["recipe"]["generations"] = 5  # type: ignore[index]
    assert cautions(grouped([going])) == ["Not finished yet: a."]


def test_runs_of_unknown_seeds_are_not_paired() -> None:
    history = [line(1)]
    (row,) = paired_table(grouped([Run("a", {}, history), Run("b", {}, history)])).rows
    assert row[1:] == ("–", "–")


def test_a_run_that_diverged_is_named_so() -> None:
    lost = run("a", 0)
    assert "diverged" in reached_table(grouped([Run("a", lost.manifest, [line(1) | {"best": None}])])).rows[0][3]
