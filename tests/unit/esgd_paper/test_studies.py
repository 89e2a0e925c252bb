"""The paper's four experiments, found by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from esgd.errors import RecipeError
from esgd.studies import find_study

EXPERIMENTS = ("bn50", "swb300", "cifar10", "ptb")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_papers_experiments_have_two_scales(name: str) -> None:
    mini, paper = find_study(name), find_study(name, scale="paper")
    assert mini.recipe.population < paper.recipe.population
    assert find_study(f"{name}@paper").recipe == paper.recipe
    assert mini.thorough
    assert mini.published == paper.published != {}
    assert set(mini.published) == {"single", "population", "no_evolution", "esgd"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_our_rules_have_the_population_and_the_epochs_of_the_papers(name: str) -> None:
    study = find_study(name)
    assert study.ours is not None
    assert study.ours.population == study.recipe.population
    assert study.ours.total_epochs == study.recipe.total_epochs
    assert study.ours.start.common == study.recipe.start.common


def test_an_unknown_scale_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="scale='papre' is not a scale of ptb. Did you mean 'paper'?"):
        find_study("ptb", scale="papre")


def test_a_toml_file_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    path = tmp_path / "longer.toml"
    path.write_text("task = 'ptb'\n[recipe]\ngenerations = 7\n")
    longer, ptb = find_study(str(path)), find_study("ptb")
    assert longer.recipe.generations == 7
    assert (longer.name, longer.baseline) == ("longer", ptb.baseline)
    assert longer.ours is None, "our rules would no longer have the epochs of the others"
    path.write_text("task = 'ptb'\n")
    assert find_study(str(path)).ours == ptb.ours
