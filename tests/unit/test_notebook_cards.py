"""Cards in a notebook: small, whole and harmless."""

from html.parser import HTMLParser

import pytest

import esgd
from esgd._text.notebook_cards import BLUE, card, remark, sparkline
from esgd.recipe import Recipe
from tests.small import classify, random_data


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    recipe = Recipe(population=8, offspring=4, generations=2, sgd_epochs=1)
    task = classify(metrics={"<b>odd": lambda output, target: 0.5}, test=random_data(20))
    result = esgd.fit(task, recipe, seed=0, engine="loop", progress=False)
    generation = next(esgd.evolve(task, recipe, seed=0, engine="loop"))
    values = {"result": result, "generation": generation, "population": result.population, "recipe": recipe}
    return {name: value._repr_html_() for name, value in values.items()}


class Balanced(HTMLParser):
    """Fails on a tag that is closed and was not open, or never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open = list[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["result", "generation", "population", "recipe"])
def test_every_card_is_whole_and_small(shown: dict[str, str], name: str) -> None:
    parser = Balanced()
    parser.feed(shown[name])
    assert parser.open == []
    assert len(shown[name]) < 12_000


def test_cards_say_what_matters(shown: dict[str, str]) -> None:
    assert "Generation 1" in shown["generation"]
    assert "offspring among elites" in shown["generation"]
    assert "Population of 8" in shown["population"]
    assert "and 3 more" in shown["population"]
    assert "U[0.01, 0.5]" in shown["recipe"]
    assert "<svg" in shown["result"]


def test_what_a_user_named_is_text_and_not_markup(shown: dict[str, str]) -> None:
    assert "&lt;b&gt;odd" in shown["result"]
    assert "<b>odd" not in shown["result"]
    assert "<i>" not in card("<i>", {"<i>": "<i>"}, remark("<i>"))


def test_a_curve_has_a_gap_where_everybody_diverged() -> None:
    assert sparkline([("best", BLUE, [3.0, None, 2.0, 1.0])]).count("M") == 2
    assert sparkline([("best", BLUE, [float("inf"), 1.0])]) == "", "one point is no curve"
