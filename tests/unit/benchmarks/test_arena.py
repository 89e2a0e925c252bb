"""The arena: ranks, paired differences, the bar in hindsight and the page, from runs whose results are known."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmarks.arena.__main__ as arena
from benchmarks.arena import pictures
from benchmarks.arena.arms import EVERY, GRID, VARIANTS, label
from benchmarks.arena.arms import HINDSIGHT as SINGLES
from benchmarks.arena.compete import compete
from benchmarks.arena.page import BEGIN, END, draw, insert, tables
from benchmarks.arena.standings import HINDSIGHT, critical_difference, mean_ranks, paired, with_hindsight
from benchmarks.arena.tasks import CONTESTS
from benchmarks.children import ROOT
from esgd import rules
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.studies.digits import task as digits
from esgd.work import Costs, expected_work
from tests.warm import python


def run(
    arm: str, seed: int, test: float, fitness: float = 1.0, task: str = "t", budget: str = "short"
) -> dict[str, Any]:
    own = {"arm": arm, "task": task, "seed": seed, "test": test, "fitness": fitness, "budget": budget}
    return {
        **own,
        "spent": 1.0,
        "seconds": 2.0,
        "shares": {"sgd": 0.8, "looks": 0.1, "offspring": 0.1},
        "curve": [[1.0, test]],
    }


RUNS = [
    *(run("ours", seed, test) for seed, test in enumerate((0.9, 0.8, 1.1))),
    *(run("pbt", seed, test, fitness=2.0) for seed, test in enumerate((1.0, 1.0, 1.0))),
]


def test_differences_are_paired_by_task_and_seed_in_percent_of_the_rival() -> None:
    found = paired(RUNS, "ours", "pbt", "test")
    assert found.mean == pytest.approx(-100 * 0.2 / 3)
    assert (found.wins, found.pairs) == (2, 3)
    low, high = found.interval
    assert low < found.mean < high
    assert str(paired(RUNS, "ours", "pbt", "fitness")) == "-50.0 [-50.0, -50.0], 3/3 runs, 1/1 tasks"


def test_an_arm_that_was_not_run_on_a_seed_is_not_compared_there() -> None:
    assert paired(RUNS[:2] + RUNS[3:], "ours", "pbt", "test").pairs == 2
    assert mean_ranks(RUNS[:2] + RUNS[3:], "test") == {"ours": 1.0, "pbt": 2.0}


def test_ranks_are_means_over_runs_and_ties_share_theirs() -> None:
    assert mean_ranks(RUNS, "test") == pytest.approx({"ours": 4 / 3, "pbt": 5 / 3})
    tied = [run("a", 0, 1.0), run("b", 0, 1.0)]
    assert mean_ranks(tied, "test") == {"a": 1.5, "b": 1.5}


def test_the_critical_difference_is_that_of_the_table_of_its_publication() -> None:
    """q = 2.343 for three arms (Demšar, 2006, table 5)."""
    runs = [run(arm, seed, 1.0) for arm in "abc" for seed in range(10)]
    assert critical_difference(runs) == pytest.approx(2.343 * (3 * 4 / (6 * 10)) ** 0.5, rel=1e-3)


def test_the_bar_in_hindsight_is_the_best_single_of_each_task() -> None:
    slow, quick = label(GRID[0]), label(GRID[1])
    singles = [run(slow, 0, 0.5), run(quick, 0, 0.7), run(slow, 0, 0.9, task="u"), run(quick, 0, 0.6, task="u")]
    found = [each for each in with_hindsight([*RUNS, *singles], [slow, quick]) if each["arm"] == HINDSIGHT]
    assert {each["task"]: each["test"] for each in found} == {"t": 0.5, "u": 0.6}
    usual = [run("single", 0, 0.4), run("single", 0, 0.1, task="without the others")]
    found = [each for each in with_hindsight([*singles, *usual], [slow, quick]) if each["arm"] == HINDSIGHT]
    assert {each["task"]: each["test"] for each in found} == {"t": 0.4, "u": 0.6}


def test_the_bar_has_the_six_policies_of_the_grid() -> None:
    assert rules.USUAL in GRID, "the rule single is one of the six"
    assert len({*SINGLES, label(rules.USUAL)}) == len(GRID) == 6


def test_figures_have_only_what_competes(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    draw(RUNS, tmp_path)
    draw([*RUNS, run(next(iter(VARIANTS)), 0, 0.01), run(next(iter(SINGLES)), 0, 0.01)], tmp_path / "more")
    for name in ("ranks.png", "anytime.png"):
        assert (tmp_path / "more" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_page_has_the_best_rank_first_and_keeps_the_words_around_the_tables(tmp_path: Path) -> None:
    words = tables([*RUNS, run("ours", 0, 1.0, budget="long"), run("pbt", 0, 2.0, budget="long")], "ours")
    rows = [line for line in words.splitlines() if line.startswith("| `")]
    assert rows[0].startswith("| `ours` | 1.33 |")
    assert "| `pbt` | 1.67 | 2.00 | -6.7 [" in rows[1]
    page = tmp_path / "arena.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    insert(page, words)
    assert page.read_text() == f"before\n{BEGIN}\n{words}\n{END}\nafter\n"
    draw(RUNS, tmp_path)
    assert (tmp_path / "ranks.png").stat().st_size > 1000
    assert (tmp_path / "anytime.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["fashion-mlp", "fashion-cnn", "cifar-cnn"])
def test_the_networks_of_the_arena_take_its_pictures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (sum(pictures.SIZES),), generator=generator)
    for source, shape in (("_fashion", (1, 28, 28)), ("_photographs", (3, 16, 16))):
        pixels = torch.randn(len(labels), *shape, generator=generator)
        monkeypatch.setattr(pictures, source, lambda pixels=pixels: (pixels, labels))
    task = CONTESTS[name].task(0)
    loss = task.loss(task.model(), next(iter(task.batches(Seeds(0), {}))))
    assert 1.0 < loss.item() < 10.0


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["halving", "grid", label(GRID[3])])
def test_a_run_of_the_arena_tells_what_it_spent_and_how_good_it_is(arm: str) -> None:
    found = compete("digits", arm, seed=100, budget="short", share=0.4)
    assert found["spent"] == pytest.approx(1.0, rel=0.03)
    assert 0 < found["test"] < 2.5
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert found["curve"][-1] == pytest.approx([found["spent"], found["test"]])


def test_an_interrupted_arena_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It begins in processes, and continues in a thread of this one."""
    words = ["--quick", "--tasks", "digits", "--budgets", "short", "--out", str(tmp_path), "--arms"]
    done = python("-m", "benchmarks.arena", *words, "single", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(arena, "ProcessPoolExecutor", lambda n, mp_context: ThreadPoolExecutor(1))
    monkeypatch.setattr(sys, "argv", ["arena", *words, "single,swa"])
    arena.main()
    said = capsys.readouterr().out
    assert "digits short swa" in said
    assert "digits short single:" not in said
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2


def test_every_part_of_our_rules_that_is_left_out_changes_the_recipe_and_not_the_work() -> None:
    task, work = digits(0), 2e5
    costs, ours = Costs.of(task, Recipe()), EVERY["ours"](task, work)
    for name in VARIANTS:
        recipe = EVERY[name](task, work)
        assert recipe.to_dict() != ours.to_dict(), name
        assert expected_work(costs, recipe) == pytest.approx(work, rel=0.02), name
