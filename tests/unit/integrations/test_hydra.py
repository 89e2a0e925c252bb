"""Recipes as configs of OmegaConf and Hydra."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

import esgd
from esgd.errors import ForeignCodeError, RecipeError
from esgd.integrations.hydra import config, recipe

YAML = """
size: 6
recipe:
  population: ${size}
  generations: 2
  species: {kind: adam, lr: {kind: log_uniform, low: 0.001, high: 0.1}}
  mutation: {kind: gaussian, sigma: 0.02}
"""


def test_a_config_is_the_recipe_that_it_spells() -> None:
    found = recipe(OmegaConf.create(YAML).recipe)
    assert found == esgd.Recipe(
        population=6,
        generations=2,
        species=esgd.species.Adam(lr=esgd.species.LogUniform(0.001, 0.1)),
        mutation=esgd.operators.Gaussian(sigma=0.02),
    )


@pytest.mark.parametrize("mates", [2, {1, 2}, {2: 0.5, 3: 0.5}])
def test_a_recipe_comes_back_from_its_config(mates: object) -> None:
    """Through YAML, as from a file of Hydra."""
    given = esgd.Recipe(population=esgd.sizes.Funnel(8, 2), mates=mates, generations=3)
    written = OmegaConf.to_yaml(config(given))
    assert recipe(OmegaConf.create(written)).to_dict() == given.to_dict()


def test_a_config_composed_from_the_command_line_overrides_a_recipe() -> None:
    composed = OmegaConf.merge(config(esgd.Recipe()), OmegaConf.from_dotlist(["population=4", "mutation.sigma=0.5"]))
    assert recipe(composed).mutation == esgd.operators.Gaussian(sigma=0.5)


@pytest.mark.parametrize(("offspring", "wanted"), [(None, 16), (64, 64)])
def test_offspring_follow_a_population_that_is_overridden_unless_they_were_given(
    offspring: int | None, wanted: int
) -> None:
    composed = OmegaConf.merge(config(esgd.Recipe(offspring=offspring)), OmegaConf.from_dotlist(["population=4"]))
    assert recipe(composed).offspring_of(1) == wanted


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("{species: {_target_: os.system, command: ls}}", RecipeError, "recipe.species._target_='os.system'"),
        ("{species: {kind: 'os:system'}}", ForeignCodeError, "names code of Python itself"),
        ("{species: {kind: 'mine.pools:Mine'}}", ForeignCodeError, "allow=['mine']"),
        ("{popluation: 4}", RecipeError, "Did you mean 'population'"),
        ("{population: '???'}", RecipeError, "cannot be read: Missing mandatory value: population"),
        ("{population: '${nothing}'}", RecipeError, "Interpolation key 'nothing' not found"),
    ],
)
def test_what_a_config_must_not_say_is_refused_by_name(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        recipe(OmegaConf.create(text))
    assert words in str(caught.value)
