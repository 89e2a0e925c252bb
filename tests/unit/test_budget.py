"""Budgets: how they are read, how a plan follows the clock, and that a run with one keeps every promise of a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd._fit.budgeted import budgeted
from esgd._serialization import read_toml
from esgd.budget import seconds_in
from esgd.errors import RecipeError, RunError, TaskError
from esgd.genome import Genome
from esgd.operators import intermediate
from esgd.progress.remaining import Remaining
from esgd.recipe import FineTuning, Recipe
from esgd.report.expected import FIGURES, expected_seconds
from esgd.run import checkpoint
from esgd.run.history import chained, read_history, rewrite
from esgd.schedules import CosineRun
from esgd.sizes import Each, Earned, Timed
from esgd.species import Optimizer, Sgd
from esgd.testing.evidence import contents, difference
from esgd.work import Costs, expected_work
from tests.small import CLASSES, INPUTS, RECORDING_SGD, classify, mlp, random_data

HOUR = Timed(seconds=3600.0, shares=(1.0, 0.4), pace=(40.0, 10.0), rest=(4.0, 2.0), start=10.0, apart=20.0)
GENERATIONS = 18


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [
        ("30m", 1800.0),
        ("2h", 7200.0),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5 h", 5400.0),
        ("1d 2min", 86520.0),
        ("5 minutes", 300.0),
        ("1 Hour 30 sec", 3630.0),
        (7, 7.0),
    ],
)
def test_a_time_is_read_as_people_write_it(budget: str | float, seconds: float) -> None:
    assert seconds_in(budget) == seconds


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("30", "It has no unit"),
        ("half an hour", "It is no time"),
        ("30m5", "It is no time"),
        ("5m5m", "'m' twice"),
        ("5m 5min", "'m' twice"),
        ("5 months", "It is no time"),
        ("0s", "is not in"),
        (-1, "is not in"),
        (float("inf"), "is not in"),
        (True, "no budget"),
        (None, "no budget"),
    ],
)
def test_what_is_no_budget_is_refused_with_examples(budget: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        seconds_in(budget)
    assert "'1h30m'" in str(caught.value)


Machine = Callable[[int], float]
"""How many times slower than planned a machine is in generation k."""


def simulated(timed: Timed, machine: Machine, generations: int = GENERATIONS) -> list[dict[str, Any]]:
    """The history of a run on an imagined machine: what `Recorder` writes, without a second going by."""
    history, now = list[dict[str, Any]](), timed.apart + timed.start
    for k in range(1, generations + 1):
        turn = timed.turn(k, generations, history)
        if turn is None:
            break
        place, slow = min(k, 2) - 1, machine(k)
        sgd, rest = slow * timed.pace[place] * turn.epochs, slow * timed.rest[place]
        clock = {"budget": timed.seconds, "begun": now, "elapsed": now + sgd + rest - 0.5 * slow, "epochs": turn.epochs}
        reached = (turn.before + turn.epochs) / turn.total
        history.append({"k": k, "seconds": {"sgd": sgd}, "clock": clock | {"reached": reached}})
        now = clock["elapsed"] + 0.5 * slow  # it is saved
    return history


@pytest.mark.parametrize("slow", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_a_machine_that_was_measured_wrongly_ends_within_five_percent(slow: float) -> None:
    history = simulated(HOUR, lambda k: slow)
    assert len(history) == GENERATIONS
    assert history[-1]["clock"]["elapsed"] == pytest.approx(3600, rel=0.05)
    assert history[-1]["clock"]["reached"] == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.75, 1.5), min_size=GENERATIONS, max_size=GENERATIONS))
def test_whatever_the_machine_does_the_run_is_never_late_by_ten_percent(slow: list[float]) -> None:
    """It may become twice as slow, or as fast, from one generation to the next."""
    history = simulated(HOUR, lambda k: slow[k - 1])
    assert history[-1]["clock"]["elapsed"] < 1.1 * HOUR.seconds
    reached = [line["clock"]["reached"] for line in history]
    assert all(one < other for one, other in pairwise([0.0, *reached])), "the schedule never goes back"
    assert reached[-1] <= 1.0 + 1e-12


def test_a_plan_is_a_function_of_the_history_alone() -> None:
    history = simulated(HOUR, lambda k: 1.0 + 0.3 * (k % 3))
    for k in range(1, GENERATIONS + 1):
        again = HOUR.turn(k, GENERATIONS, [dict(line) for line in history[: k - 1]])
        assert again is not None
        assert again.epochs == history[k - 1]["clock"]["epochs"]


def test_the_last_generation_is_short_enough_to_be_twice_as_slow() -> None:
    history = simulated(HOUR, lambda k: 2.0 if k == GENERATIONS else 1.0)
    assert history[-1]["k"] == GENERATIONS
    assert history[-1]["clock"]["elapsed"] < 1.06 * HOUR.seconds


def test_when_the_time_is_over_no_generation_begins() -> None:
    history = simulated(HOUR, lambda k: 12.0 if k == 1 else 1.0)
    assert len(history) == 1, "the first took longer than the whole budget"
    assert HOUR.turn(2, GENERATIONS, history) is None
    recipe = Recipe(population=2, generations=GENERATIONS, sgd_epochs=HOUR)
    assert recipe.out_of_time(1, history) == "the time of 1 h 00 min is over"
    assert recipe.out_of_time(0, []) == ""


def test_a_planned_run_takes_the_budget() -> None:
    recipe = Recipe(population=2, generations=GENERATIONS, sgd_epochs=HOUR)
    planned = [HOUR.pace[min(stage.k, 2) - 1] * stage.sgd_epochs for stage in recipe.stages()]
    beside = HOUR.apart + HOUR.start + HOUR.rest[0] + HOUR.rest[1] * (GENERATIONS - 1)
    assert sum(planned) + beside == pytest.approx(3600)
    *_, last = recipe.stages()
    assert last.before + last.sgd_epochs == pytest.approx(last.total)


@pytest.mark.parametrize(
    "changes", [{"seconds": 0.0}, {"shares": ()}, {"pace": (0.0,)}, {"rest": (-1.0,)}, {"apart": 3600.0}, {"pace": 3.0}]
)
def test_a_clock_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        replace(HOUR, **changes)


def unhurried(generations: int = 4, seconds: float = 3600.0) -> Recipe:
    """A recipe with so much time that no machine is ever late: what is seen is how it decides."""
    return Recipe(
        population=2,
        offspring=2,
        generations=generations,
        sgd_epochs=Timed(seconds=seconds, shares=(1.0,), pace=(50 * seconds / generations,), rest=(0.01,)),
        species=Sgd(lr=0.1, schedule=CosineRun()),
    )


def fitted(recipe: Recipe | None = None, **more: Any) -> esgd.Result:
    return esgd.fit(classify(), recipe, seed=0, engine="loop", progress=False, report=False, **more)


def test_a_run_that_is_resumed_decides_as_before(tmp_path: Path) -> None:
    """Two continuations of one folder: each later decision is made from what it says, not from the clock."""
    first = fitted(unhurried(), run=tmp_path / "one", stop=lambda generation: generation.k == 2)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    one, other = (
        fitted(unhurried(), run=tmp_path / name, stop=lambda generation: generation.k == 3) for name in ("one", "other")
    )
    told = [line["clock"] for line in one.history]
    assert told[:2] == [line["clock"] for line in first.history] == [line["clock"] for line in other.history[:2]]
    assert told[2]["epochs"] == other.history[2]["clock"]["epochs"] != told[0]["epochs"]
    assert told[2]["reached"] == other.history[2]["clock"]["reached"]
    assert not difference(contents(one.population), contents(other.population))
    assert {line["guarantee"] for line in one.history} == {"held"}
    assert told[2]["begun"] == pytest.approx(told[1]["elapsed"]), "time in between does not count"


def test_a_run_of_a_budget_keeps_the_plan_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begun = fitted(unhurried(), run=folder, stop=lambda generation: generation.k == 1)
    whole = fitted(budget="1h", run=folder)
    assert whole.recipe == replace(begun.recipe, recombination=intermediate)
    assert [line["k"] for line in whole.history] == [1, 2, 3, 4]
    assert Recipe.from_dict(read_toml((folder / "recipe.toml").read_text())) == whole.recipe
    with pytest.raises(RunError, match="extend=True"):
        fitted(budget="2h", run=folder)
    longer = fitted(budget="2h", run=folder, extend=True, stop=lambda generation: generation.k == 5)
    assert longer.recipe is not None
    assert longer.recipe.clock == replace(unhurried().sgd_epochs, seconds=7200.0)  # type: ignore[type-var]
    assert longer.history[4]["clock"]["reached"] < whole.history[3]["clock"]["reached"] == pytest.approx(1.0)
    assert {line["guarantee"] for line in longer.history} == {"held"}


def test_without_its_budget_a_run_says_which_it_has(tmp_path: Path) -> None:
    """What is listed of the two recipes is cut short: the remedy is not to be looked for among numbers."""
    fitted(unhurried(), run=tmp_path / "run", stop=lambda generation: generation.k == 1)
    with pytest.raises(RunError, match="give it again, budget=3600 or --budget 3600s") as refused:
        fitted(run=tmp_path / "run")
    assert max(map(len, str(refused.value).splitlines()[:-1])) < 250
    assert fitted(budget=3600, run=tmp_path / "run", stop=lambda generation: generation.k == 2).history[1]["k"] == 2


def test_a_run_of_a_budget_keeps_the_rules_that_it_began_with(tmp_path: Path) -> None:
    """They are measured and not made again, so that another recipe would not be noticed."""
    soon = {"run": tmp_path / "run", "budget": 0.5, "stop": lambda generation: generation.k == 1}
    kept = replace(fitted(rules="pbt", **soon).recipe, recombination=intermediate)  # type: ignore[type-var]
    with pytest.raises(RunError, match="follows rules 'pbt', and rules='ours' are asked for"):
        fitted(rules="ours", **soon)
    for more in ({}, {"rules": "pbt"}):
        assert fitted(**soon, **more).recipe == kept
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    del manifest["rules"]  # as an earlier version wrote it
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    assert fitted(rules="ours", **soon).recipe == kept
    fitted(unhurried(), run=tmp_path / "given", stop=lambda generation: generation.k == 1)
    with pytest.raises(RunError, match="follows a recipe that was given, and rules='ours' are asked for"):
        fitted(rules="ours", budget="1h", run=tmp_path / "given")


@pytest.mark.parametrize(
    "species",
    [
        Optimizer(name=RECORDING_SGD, lr=0.1),
        lambda request: esgd.Policy(optimizer="sgd", hyper={"lr": 0.1}),
    ],
    ids=["of a package", "not importable"],
)
def test_a_recipe_of_ones_own_code_continues_within_its_budget(species: Any, tmp_path: Path) -> None:
    begun = replace(unhurried(), species=species)
    fitted(begun, run=tmp_path / "run", stop=lambda generation: generation.k == 1)
    given = replace(begun, sgd_epochs=1, generations=2)
    again = fitted(given, budget="1h", run=tmp_path / "run", stop=lambda generation: generation.k == 2)
    assert again.recipe == begun
    assert [line["k"] for line in again.history] == [1, 2]
    with pytest.raises(RunError, match="offspring is 2 in the folder, 3 now"):
        fitted(replace(given, offspring=3), budget="1h", run=tmp_path / "run")


def test_as_much_of_the_time_is_kept_for_the_report_as_that_will_take() -> None:
    """The rest of what is apart is what planning took, however long that is on this machine."""
    ends, kept = iter([0.0, 0.3, 1.0, 1.2]), list[float]()

    def after() -> float:
        kept.append(expected_seconds(lambda: next(ends)))
        return kept[-1]

    asked = {"rules": None, "run": None, "extend": False, "allow": ()}
    begun = perf_counter()
    recipe, _ = budgeted(classify(), replace(unhurried(), sgd_epochs=1), "30s", "loop", after=after, **asked)  # type: ignore[arg-type]
    planning = perf_counter() - begun
    assert recipe.clock is not None
    assert kept == [pytest.approx(FIGURES * 0.2)], "of two drawings, the one that nothing delayed"
    assert kept[0] < recipe.clock.apart < kept[0] + planning


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "run"
    fitted(unhurried(2), run=folder, stop=lambda generation: generation.k == 1)
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"clock": {"elapsed": -1e300}},
        {"clock": {"begun": 1e9}},
        {"clock": {"epochs": 0.0}},
        {"clock": {"reached": 2.0}},
        {"clock": {"budget": 0.0}},
        {"clock": {"sgd": "long"}},
        {"seconds": {"sgd": None}},
        {"ledger": {"fitness_sgd": []}},
    ],
    ids=str,
)
def test_a_time_that_cannot_be_is_damage(changes: dict[str, dict[str, Any]], begun: Path, tmp_path: Path) -> None:
    """Sealed again, as a stranger can: it is not planned with."""
    folder = Path(shutil.copytree(begun, tmp_path / "run"))
    line = read_history(folder / "history.jsonl")[0]
    for name, values in changes.items():
        line[name] |= values
    for file in (folder / "history.jsonl", folder / "checkpoint" / "history.jsonl"):
        rewrite(file, [line])
    file = folder / "checkpoint" / "000001" / checkpoint.WORDS
    words = json.loads(file.read_text())["state"]
    words["digests"][checkpoint.LINES] = chained([line])
    file.write_text(json.dumps(checkpoint.sealed(words)))
    genome = Genome.of(classify().model())
    with pytest.raises(checkpoint.DamagedError, match="of generation 1 is"):
        checkpoint.load(folder / "checkpoint" / "000001", genome, run=words["run"])


def test_seconds_that_no_digest_covers_decide_nothing(begun: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(begun, tmp_path / "run"))
    line = read_history(folder / "history.jsonl")[0]
    clock = unhurried(2).clock
    assert clock is not None
    assert clock.turn(2, 2, [line]) == clock.turn(2, 2, [{**line, "seconds": {"sgd": 1000.0}}])
    rewrite(folder / "history.jsonl", [{**line, "seconds": {"sgd": "long"}}])
    fitted(unhurried(2), run=folder)
    assert read_history(folder / "history.jsonl")[0]["clock"] == line["clock"]
    assert (folder / "history.jsonl.damaged").exists()


def test_a_run_that_has_no_time_left_ends_with_what_it_has(tmp_path: Path) -> None:
    recipe = unhurried(seconds=1e-4)
    ended, again = fitted(recipe, run=tmp_path / "run"), fitted(recipe, run=tmp_path / "run")
    assert len(ended.history) == len(again.history) == 1
    assert ended.stopped == again.stopped == "the time of 0.0001 s is over"
    assert ended.model is not None


def test_a_run_without_a_budget_is_not_given_one_later(tmp_path: Path) -> None:
    fitted(replace(unhurried(1), sgd_epochs=1), run=tmp_path / "run")
    with pytest.raises(RunError, match="without a budget"):
        fitted(budget="1h", run=tmp_path / "run")


@pytest.mark.slow
def test_a_recipe_within_a_time_is_ordinary_and_can_be_edited(tmp_path: Path) -> None:
    recipe = Recipe.within("10m", classify(), "loop")
    clock = recipe.clock
    assert clock is not None
    assert clock.seconds == 600
    assert clock.share(recipe.generations, recipe.generations) < 0.06
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    edited = replace(recipe, sgd_epochs=replace(clock, seconds=1.5), offspring=Earned(1, 2))
    result = fitted(edited, run=tmp_path / "run")
    assert result.recipe == edited
    assert {line["guarantee"] for line in result.history} == {"held"}
    assert len(result.history) == edited.generations or "is over" in result.stopped


@pytest.mark.slow
def test_the_epochs_of_a_recipe_follow_a_budget() -> None:
    """Of work, too: its proportions stay."""
    task, mine = classify(), Recipe(population=4, offspring=4, generations=3, sgd_epochs=Each((1, 2, 3)))
    *generations, _ = esgd.evolve(task, mine, budget=esgd.Work(samples=1e5), seed=0, engine="loop")
    used = [generation.work.sgd_forward for generation in generations]
    assert used[1] == pytest.approx(2 * used[0], rel=0.02)
    timed = esgd.explain(task, mine, "10m", "loop").recipe
    assert timed.clock is not None
    assert timed.generations > 3, "the last half of the time is divided into short parts"
    assert timed.clock.share(timed.generations, timed.generations) <= 0.06
    assert [timed.population_of(k) for k in (1, timed.generations)] == [4, 4]


class Slow(nn.Module):
    """A network that is slow without being large, which no count of operations foresees."""

    passes = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        Slow.passes += 1
        sleep(0.31)
        return self.layer(x)


def test_a_slow_network_is_measured_by_few_steps_and_gets_a_small_race() -> None:
    """By its operations there would be time for 81 networks, and to score them all would take longer than all."""
    task, Slow.passes = classify(Slow), 0
    recipe = Recipe.within("40s", task, "loop")
    assert recipe.population_of(1) == 9
    assert Slow.passes < 20


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(fine_tuning=FineTuning(lr=0.1)), "fine_tuning has its own number of epochs"),
        (Recipe(sgd_epochs=0), "it has no SGD"),
        (Recipe(generations=1), "one generation"),
    ],
)
def test_a_recipe_that_cannot_follow_the_clock_is_refused(recipe: Recipe, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        esgd.evolve(classify(), recipe, budget="30m", seed=0, engine="loop")


@pytest.mark.parametrize("budget", ["30m", 1800, esgd.Work(samples=1e6)])
def test_a_budget_in_place_of_a_recipe_is_named(budget: Any) -> None:
    for call in (fitted, lambda given: esgd.evolve(classify(), given, seed=0)):
        with pytest.raises(RecipeError, match="is no recipe. Use budget="):
            call(budget)


def test_a_budget_in_place_of_a_recipe_is_explained() -> None:
    work = esgd.Work(samples=2e5)
    assert esgd.explain(classify(), work, engine="loop").recipe == Recipe.within(work, classify())
    with pytest.raises(RecipeError, match="is no recipe"):
        esgd.explain(classify(), "30m", "30m")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"recipe": Recipe(), "rules": "pbt"}, "rules='pbt' make a recipe, and one is given"),
        ({"recipe": Recipe(), "rules": "ours"}, "rules='ours' make a recipe, and one is given"),
        ({"budget": 1e308}, r"budget=1e\+308 is not in"),
        (
            {"budget": esgd.Work(samples=1e6), "extend": True, "run": "nowhere"},
            r"Give a longer recipe: result.recipe.extended\(20\)",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_before_a_folder_is_made(given: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        fitted(**given)
    assert not Path("nowhere").exists()


def test_no_machine_does_so_much_work() -> None:
    with pytest.raises(RecipeError, match="samples=1e\\+300 is not in"):
        esgd.Work(samples=1e300)


@pytest.mark.parametrize("given", [{}, {"budget": "30m"}, {"budget": esgd.Work(samples=1e6)}], ids=str)
def test_data_without_a_batch_are_named(given: Any) -> None:
    class Nothing(esgd.Supervised):
        def batch_sizes(self, settings: Any) -> list[int]:
            return []

        def batches(self, seeds: Any, settings: Any) -> list[Any]:
            return []

    task = Nothing(mlp, F.cross_entropy, train=random_data(8), fitness=random_data(8))
    with pytest.raises(TaskError, match="give no batch"):
        esgd.fit(task, seed=0, engine="loop", progress=False, **given)


def test_an_amount_of_work_is_that_of_the_rules() -> None:
    task = classify()
    recipe = Recipe.within(esgd.Work(samples=2e5), task)
    assert recipe == esgd.rules.ours(task, 2e5)
    told = esgd.explain(task, recipe, engine="loop")
    assert told.samples == expected_work(Costs.of(task, recipe), recipe) == pytest.approx(2e5, rel=0.01)
    assert told.generations == recipe.generations
    assert f"{told.cost['parameters']:,} parameters" in str(told)
    assert told.to_dict()["symbols"]["K"] == recipe.generations


def test_a_run_with_a_budget_says_how_much_of_it_is_left() -> None:
    now = [0.0]
    remaining = Remaining(unhurried().stages(), now=lambda: now[0], until=100.0)
    now[0] = 30.0
    assert remaining.estimate is not None
    assert remaining.estimate.seconds == 70.0


@pytest.mark.parametrize("recipe", [None, Recipe(population=2, generations=2)], ids=["rules", "a recipe"])
@pytest.mark.parametrize("budget", ["2s", esgd.Work(samples=2e4)], ids=str)
def test_data_of_unknown_length_are_refused_with_a_budget_and_not_read(budget: Any, recipe: Recipe | None) -> None:
    def unread() -> Any:
        pytest.fail("the data were read, which may have no end")

    task = esgd.Supervised(mlp, F.cross_entropy, train=unread, fitness=random_data(64))
    with pytest.raises(RecipeError) as refused:
        esgd.fit(task, recipe, budget=budget, seed=0, engine="loop", progress=False)
    assert f"budget={budget!r} trains parts of epochs" in str(refused.value)
    assert "an IterableDataset with a __len__; or leave it out and give a recipe" in str(refused.value)


def test_rules_refuse_data_of_unknown_length_before_they_read_them() -> None:
    def unread() -> Any:
        pytest.fail("the data were read, which may have no end")

    task = esgd.Supervised(mlp, F.cross_entropy, train=unread, fitness=random_data(64))
    for rules in ("halving", "paper"):
        with pytest.raises(RecipeError, match="does not know how many batches an epoch has"):
            esgd.fit(task, rules=rules, seed=0, engine="loop", progress=False)
