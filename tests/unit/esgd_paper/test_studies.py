"""The paper's four experiments, found by their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esgd.errors import RecipeError
from esgd.operators import Perturbed
from esgd.policies import Policy
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.rules import named, ours
from esgd.sizes import Each
from esgd.species import Sgd
from esgd.studies import Study, by_rules, find_study, with_rules
from tests.small import ask, classify

EXPERIMENTS = ("bn50", "swb300", "cifar10", "ptb")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_papers_experiments_have_two_scales(name: str) -> None:
    mini, paper = find_study(name), find_study(name, scale="paper")
    assert mini.recipe.population < paper.recipe.population
    assert find_study(f"{name}@paper").recipe == paper.recipe
    assert mini.published == paper.published != {}
    assert set(mini.published) == {"single", "population", "no_evolution", "esgd"}


@pytest.mark.parametrize(("name", "first"), [("bn50", False), ("swb300", False), ("cifar10", True), ("ptb", True)])
def test_rules_begin_with_the_network_of_the_run_that_comes_first(name: str, first: bool) -> None:
    task = classify()
    study = replace(find_study(name), task=lambda seed: task)
    start = with_rules(study, "single", 1e5, 0).recipe.start
    assert start == (Perturbed(network=BASELINE, sigma=0.0) if first else Recipe().start)


def test_a_study_tells_rules_what_to_draw_from_and_how_to_train_one_network() -> None:
    task, policy = classify(), Policy(optimizer="sgd", hyper={"lr": 0.2})
    silent = Study(name="mine", about="", task=lambda seed: task, recipe=Recipe(population=5))
    telling = replace(silent, population=Sgd(lr=0.3, gamma=1.0), alone=policy)
    assert not silent.tells_rules
    assert telling.tells_rules
    for rules, population in (
        ("random_search", 5),
        ("pbt", 5),
        ("soup", 5),
        ("papa", 5),
        ("halving", Each((27, 9, 3, 1))),
    ):
        told, untold = (with_rules(study, rules, 1e6, 0).recipe for study in (telling, silent))
        assert told.species(ask(1)).hyper["lr"] == 0.3
        assert told.population == population
        assert untold == named(rules)(task, 1e6)
    assert with_rules(telling, "ours", 1e6, 0).recipe == ours(task, 1e6, rates=Sgd(lr=0.3, gamma=1.0))
    assert with_rules(telling, "single", 1e6, 0).recipe.species(ask(1)) == policy
    assert with_rules(telling, "paper", 1e6, 0).recipe == named("paper")(task, 1e6)


def test_for_a_budget_rules_make_the_recipe_later_unless_the_study_tells_them_more() -> None:
    task = classify()
    silent = Study(name="mine", about="", task=lambda seed: task, recipe=Recipe(population=4), rules="ours")
    telling = replace(silent, population=Sgd(lr=0.3, gamma=1.0))

    def made(study: Study, rules: str | None = None, budget: str | None = None, *, given: bool = False) -> bool:
        return by_rules(study, rules, recipe_given=given, budget=budget, work=None, seed=0)[1]

    assert made(silent)
    assert made(silent, "pbt")
    assert not made(silent, budget="30s")
    assert made(telling, "pbt", "30s")
    assert made(replace(telling, rules=""), budget="30s")
    assert not made(telling, given=True)


def test_an_unknown_scale_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="scale='papre' is not a scale of ptb. Did you mean 'paper'?"):
        find_study("ptb", scale="papre")


def test_a_toml_file_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    path = tmp_path / "longer.toml"
    path.write_text("task = 'ptb'\n[recipe]\ngenerations = 7\n")
    longer, ptb = find_study(str(path)), find_study("ptb")
    assert longer.recipe.generations == 7
    assert (longer.name, longer.baseline) == ("longer", ptb.baseline)
