"""Health notes: each is said where it applies, once, and says what to change."""

from __future__ import annotations

from typing import Any

import pytest

from esgd._sizes.timed import Timed
from esgd.generation import Noted
from esgd.health import examine
from esgd.operators import Perturbed, Uninterrupted
from esgd.recipe import Recipe
from esgd.sizes import Each

RECIPE = Recipe(population=4, elites=2)
ENOUGH = 1000


def line(**changes: Any) -> dict[str, Any]:
    """A generation in good health."""
    healthy = {
        "k": 3,
        "best": 0.5,
        "fitness": [0.5, 0.6, 0.7, 0.8],
        "elites": 2,
        "backed_off": 1,
        "checked": 4,
        "diverged": 0,
        "founders": 4,
        "test": {},
        "notes": [],
    }
    return {**healthy, **changes}


def kinds(
    record: dict[str, Any], *earlier: dict[str, Any], recipe: Recipe = RECIPE, steps: int | None = ENOUGH
) -> list[str]:
    return [note.kind for note in examine(record, Noted.of(earlier), recipe, steps)]


def test_a_healthy_generation_gets_no_note() -> None:
    assert kinds(line()) == []


@pytest.mark.parametrize(
    ("changes", "kind", "advice"),
    [
        ({"k": 1, "backed_off": 3}, "hot", "lower the top of the ranges; if not, scale them first"),
        ({"backed_off": 4}, "frozen", "Anneal the learning rate"),
        ({"diverged": 4}, "diverged", "lower the learning-rate ranges"),
        ({"fitness": [0.5, 0.50001, 0.7, None]}, "flat", "lower elites"),
        ({"founders": 1}, "lineage", "Lower elites"),
    ],
)
def test_a_note_says_what_it_means_and_what_to_change(changes: dict[str, Any], kind: str, advice: str) -> None:
    notes = examine(line(**changes), Noted(), RECIPE, ENOUGH)
    assert [note.kind for note in notes] == [kind]
    assert advice in str(notes[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 1, "backed_off": 2},  # half is not yet too hot
        {"k": 2, "backed_off": 3},  # three quarters are usual later on
        {"diverged": 3},
        {"backed_off": 0, "checked": 0},  # no back-off at all
        {"fitness": [None] * 4, "best": None},
    ],
)
def test_what_is_still_usual_gets_no_note(changes: dict[str, Any]) -> None:
    assert kinds(line(**changes)) == []


def test_short_generations_are_flagged_with_their_number_of_steps() -> None:
    (note,) = examine(line(), Noted(), Recipe(population=4, elites=2, sgd_epochs=3), 10)
    assert note.kind == "short"
    assert "only 30 SGD steps" in note.text
    assert "Raise sgd_epochs until" in note.text


def test_short_generations_of_a_budget_are_told_to_lengthen_it() -> None:
    timed = Timed(seconds=12.0, shares=(1.0,), pace=(0.5,), rest=(0.2,), start=2.0)
    (note,) = examine(line(clock={"epochs": 3}), Noted(), Recipe(population=4, elites=2, sgd_epochs=timed), 10)
    assert "Give a longer budget, or fewer generations, until a generation has at least" in note.text
    assert "sgd_epochs" not in note.text


@pytest.mark.parametrize(
    ("recipe", "steps"),
    [(RECIPE, None), (Recipe(population=4, evolution_steps=0), 1), (Recipe(population=4, sgd_epochs=0), 1)],
    ids=["unknown", "no evolution", "no SGD"],
)
def test_generations_without_known_or_competing_sgd_are_not_called_short(recipe: Recipe, steps: int | None) -> None:
    assert kinds(line(), recipe=recipe, steps=steps) == []


def test_a_common_start_is_not_told_that_it_has_one_lineage() -> None:
    assert kinds(line(founders=1), recipe=Recipe(population=4, start=Perturbed())) == []


def test_a_race_of_trajectories_that_are_not_interrupted_is_not_judged_as_a_population() -> None:
    race = Recipe(population=Each((4, 2)), elites=1.0, baggage=Uninterrupted())
    assert kinds(line(founders=1, backed_off=4), recipe=race, steps=1) == []
    assert kinds(line(founders=1, backed_off=4)) == ["frozen", "lineage"]


def test_a_test_loss_that_rises_while_the_fitness_falls_is_called_over_fitting() -> None:
    earlier = line(k=1, best=0.9, test={"loss": 1.0})
    notes = examine(line(k=2, best=0.5, test={"loss": 1.1}), Noted.of([earlier]), RECIPE, ENOUGH)
    assert [note.kind for note in notes] == ["overfit"]
    assert "stop at 1" in notes[0].text


@pytest.mark.parametrize("loss", [0.9, 1.01, None])
def test_a_test_loss_that_falls_wavers_or_is_not_finite_is_no_over_fitting(loss: float | None) -> None:
    assert kinds(line(k=2, test={"loss": loss}), line(k=1, best=0.9, test={"loss": 1.0})) == []


def test_a_note_is_said_once_in_a_run() -> None:
    said = line(k=2, notes=[{"kind": "frozen", "text": "…"}])
    assert kinds(line(backed_off=4), said) == []


def test_a_gap_between_fitness_and_test_loss_is_named_where_the_two_are_one_loss() -> None:
    wide = line(best=0.4, test={"loss": 0.6})
    (note,) = examine(wide, Noted(), RECIPE, ENOUGH, comparable=True)
    assert note.kind == "gap"
    assert "0.4" in note.text
    assert "0.6" in note.text
    assert examine(line(best=0.4, test={"loss": 0.45}), Noted(), RECIPE, ENOUGH, comparable=True) == ()
    assert examine(wide, Noted(), RECIPE, ENOUGH, comparable=False) == ()


SYMPTOMS = [
    {"k": 1, "backed_off": 3},
    {"backed_off": 4},
    {"fitness": [0.5, 0.50001, 0.7, None]},
]


@pytest.mark.parametrize("changes", SYMPTOMS)
def test_a_population_that_has_not_begun_to_learn_gets_other_advice(changes: dict[str, Any]) -> None:
    (note,) = examine(line(**changes), Noted(), RECIPE, ENOUGH, constant=0.5)
    assert note.kind == "untrained"
    assert "esgd.scaled(task)" in note.text
    assert "ten times as high and ten times as low" in note.text


def test_divergence_is_named_whatever_the_population_has_learned() -> None:
    lost = line(best=None, fitness=[None] * 4, diverged=4, backed_off=4)
    assert [note.kind for note in examine(lost, Noted(), RECIPE, ENOUGH, constant=0.5)] == ["diverged"]


def test_a_population_that_is_on_its_way_is_not_called_untrained() -> None:
    assert examine(line(), Noted(), RECIPE, ENOUGH, constant=0.5) == ()
    assert [note.kind for note in examine(line(backed_off=4), Noted(), RECIPE, ENOUGH, constant=0.6)] == ["frozen"]


def test_the_last_generation_says_that_a_constant_answer_is_as_good() -> None:
    last = line(k=RECIPE.stage_count, best=0.499)
    (note,) = examine(last, Noted(), RECIPE, ENOUGH, constant=0.5, ends=True)
    assert note.kind == "constant"
    assert "0.499, no better than that of a constant answer, 0.5" in note.text
    assert examine(last, Noted(), RECIPE, ENOUGH, constant=0.6, ends=True) == ()
    assert examine(last, Noted(), RECIPE, ENOUGH, constant=0.0, ends=True) == (), "of constant targets nothing is said"
    told = {**last, "notes": [{"kind": "constant", "text": "At the end …"}]}
    longer = line(k=RECIPE.stage_count + 5, best=0.499)
    (again,) = examine(longer, Noted.of([told]), RECIPE, ENOUGH, constant=0.5, ends=True)
    assert again.kind == "constant", "a run that was extended has another end"
