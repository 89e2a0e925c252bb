"""A finished run continues: with more generations, with other rules, in its folder or from its result."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import esgd
from esgd.errors import FitnessError, RecipeError, RunError
from esgd.operators import Gaussian
from esgd.run import verify
from esgd.sizes import Funnel, Shared
from esgd.species import Fixed
from tests.command import esgd as command
from tests.small import batchnorm_mlp, classify, random_data
from tests.unit.run.test_kill_and_resume import bits

RECIPE = esgd.Recipe(population=4, offspring=6, generations=2, sgd_epochs=1)
LONGER = RECIPE.extended(4)
FIXED = Fixed(policy=esgd.Policy(optimizer="adam", hyper={"lr": 0.01}))


class KilledError(BaseException):
    """Passes through everything, as a signal would."""


def fit(recipe: esgd.Recipe = RECIPE, task: Any = None, **options: Any) -> esgd.Result:
    given = {"seed": 0, "engine": esgd.Loop(threads=1), "progress": False, "report": False, **options}
    return esgd.fit(task or classify(batchnorm_mlp), recipe, **given)


def dying(generations: int) -> Any:
    """A tracker with which a run ends after so many generations, as if it was killed."""

    class Log:
        where, done = "nowhere", 0

        def open(self, run: Any) -> Any:
            return self

        def write(self, record: Any) -> None:
            if record["k"] == generations:
                raise KilledError

        def close(self, model: Any) -> None:
            pass

    return Log()


def notes(result: esgd.Result) -> dict[int, str]:
    return {line["k"]: note["text"] for line in result.history for note in line["notes"] if note["kind"] == "extended"}


def assert_no_elite_got_worse(history: list[dict[str, Any]]) -> None:
    assert {line["guarantee"] for line in history} == {"held"}
    for before, after in pairwise(history):
        m = min(after["elites"], len(before["fitness"]))
        assert all(new <= old for old, new in zip(*(sorted(x["fitness"])[:m] for x in (before, after)), strict=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fit(run=tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extended") / "run"
    fit(run=folder)
    fit(LONGER, run=folder, extend=True)
    return folder


def test_a_finished_run_is_extended_where_it_ended(folder: Path) -> None:
    before = bits(folder)["history"]
    result = fit(LONGER, run=folder, extend=True)
    assert [line["k"] for line in result.history] == [1, 2, 3, 4]
    assert bits(folder)["history"][:2] == before
    assert_no_elite_got_worse(result.history)
    assert verify(folder).faults == ()
    assert (verify(folder).done, verify(folder).planned) == (4, 4)


def test_the_history_says_where_and_how_a_run_was_extended(extended: Path) -> None:
    result = fit(LONGER, run=extended)
    assert notes(result) == {3: "The run was extended after generation 2. Changed: generations: 2 → 4."}
    manifest = json.loads((extended / "manifest.json").read_text())
    assert [(part["after"], part["recipe"]["generations"]) for part in manifest["extended"]] == [(2, 2)]
    assert manifest["recipe"]["generations"] == 4


def test_an_extended_run_of_constant_rules_has_the_bits_of_one_that_was_longer_from_the_start(tmp_path: Path) -> None:
    constant = replace(RECIPE, species=FIXED)  # our own pools anneal their ranges until generation K
    fit(constant, run=tmp_path / "run")
    fit(constant.extended(4), run=tmp_path / "run", extend=True)
    fit(replace(constant, generations=4), run=tmp_path / "whole")
    one, other = bits(tmp_path / "run"), bits(tmp_path / "whole")
    assert one["tensors"] == other["tensors"]
    assert one["model"] == other["model"]


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("again", [{}, {"extend": True}])
def test_a_killed_extension_ends_with_the_same_bits(
    extended: Path, tmp_path: Path, k: int, again: dict[str, Any]
) -> None:
    folder = tmp_path / "run"
    fit(run=folder)
    with pytest.raises(KilledError):
        fit(LONGER, run=folder, extend=True, trackers=[dying(k)])
    fit(LONGER, run=folder, **again)
    assert bits(folder) == bits(extended)


def test_an_extension_that_was_killed_before_its_first_generation_ends_with_the_same_bits(
    extended: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"

    def batches(*_: Any) -> None:
        raise KilledError

    fit(run=folder)
    task = classify(batchnorm_mlp)
    task.batches_together = task.batches = batches  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        fit(LONGER, task, run=folder, extend=True)
    assert [path.name for path in sorted((folder / "checkpoint").glob("0*"))] == ["000001", "000002"]
    fit(LONGER, run=folder)
    assert bits(folder) == bits(extended)


def test_a_run_is_extended_more_than_once(folder: Path) -> None:
    fit(RECIPE.extended(3), run=folder, extend=True)
    result = fit(RECIPE.extended(4), run=folder, extend=True)
    assert sorted(notes(result)) == [3, 4]
    assert_no_elite_got_worse(result.history)
    assert verify(folder).faults == ()


def test_a_run_that_was_stopped_on_its_way_is_extended_from_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        fit(run=folder, trackers=[dying(1)])
    result = fit(LONGER, run=folder, extend=True)
    assert list(notes(result)) == [2]
    assert len(result.history) == 4


def test_other_rules_take_over_and_are_named(folder: Path) -> None:
    other = replace(LONGER, mutation=Gaussian(sigma=0.5), offspring=3)
    result = fit(other, run=folder, extend=True)
    assert "mutation.sigma: 0.01 → 0.5" in notes(result)[3]
    assert "offspring: 6 → 3" in notes(result)[3]
    assert_no_elite_got_worse(result.history)


def test_a_funnel_stays_as_narrow_as_it_ended(tmp_path: Path) -> None:
    recipe = esgd.Recipe(population=Funnel(5, 2), elites=0.5, offspring=4, generations=3, sgd_epochs=Shared(4), mates=2)
    folder = tmp_path / "run"
    fit(recipe, run=folder)
    with pytest.raises(RecipeError, match=r"recipe.extended\(6\)"):
        fit(replace(recipe, generations=6), run=folder, extend=True)
    result = fit(recipe.extended(5), run=folder, extend=True)
    assert [len(line["fitness"]) for line in result.history] == [3, 2, 2, 2, 2]
    assert_no_elite_got_worse(result.history)


def test_a_run_with_fine_tuning_is_extended_after_it_and_fine_tuned_again(tmp_path: Path) -> None:
    recipe = replace(RECIPE, fine_tuning=esgd.FineTuning(lr=0.01, epochs=1))
    fit(recipe, run=tmp_path / "run")
    result = fit(recipe.extended(4), run=tmp_path / "run", extend=True)
    assert [line["stage"] for line in result.history] == ["evolution"] * 2 + ["fine-tuning", "evolution", "fine-tuning"]
    assert verify(tmp_path / "run").faults == ()


# Refusals


def test_without_extend_a_longer_recipe_is_refused_and_the_way_is_named(folder: Path) -> None:
    with pytest.raises(RunError, match="extend=True"):
        fit(LONGER, run=folder)


def test_other_data_are_no_extension(folder: Path) -> None:
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(RunError, match="data.fitness") as error:
        fit(LONGER, classify(batchnorm_mlp, fitness=random_data(70, seed=9)), run=folder, extend=True)
    assert "extend=True" not in str(error.value)
    assert (folder / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("generations", [1, 2])
def test_an_extension_that_adds_nothing_is_refused(folder: Path, generations: int) -> None:
    recipe = replace(RECIPE, generations=generations, mutation=Gaussian(sigma=0.5))
    with pytest.raises(RunError, match="has 2 generations.*nothing would be added"):
        fit(recipe, run=folder, extend=True)
    assert verify(folder).faults == ()


@pytest.mark.parametrize("generations", [2, 1.5, True, "4"])
def test_a_recipe_is_extended_to_more_generations_only(generations: Any) -> None:
    with pytest.raises(RecipeError, match="above the 2 generations"):
        RECIPE.extended(generations)


def test_extend_needs_a_folder() -> None:
    with pytest.raises(RecipeError, match="run="):
        fit(LONGER, extend=True)


def test_extend_of_a_new_folder_is_a_run(tmp_path: Path) -> None:
    assert len(fit(run=tmp_path / "new", extend=True).history) == 2
    assert "extended" not in json.loads((tmp_path / "new" / "manifest.json").read_text())


def test_a_run_that_lost_all_checkpoints_since_its_extension_is_not_begun_with_another_recipe(extended: Path) -> None:
    folder = extended.with_name("lost")
    shutil.copytree(extended, folder)
    for path in (folder / "checkpoint").glob("0*"):
        (path / "state.json").unlink()
    with pytest.raises(RunError, match="extended after generation 2.*Restore checkpoint/000002"):
        fit(LONGER, run=folder)


def test_a_checkpoint_of_a_run_with_another_extension_is_refused(extended: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    fit(run=other)
    fit(replace(LONGER, mutation=Gaussian(sigma=0.5)), run=other, extend=True)
    shutil.rmtree(other / "checkpoint" / "000004")
    shutil.copytree(extended / "checkpoint" / "000004", other / "checkpoint" / "000004")
    assert verify(other).faults
    with pytest.raises(RunError, match="belongs to another run"):
        fit(replace(LONGER, mutation=Gaussian(sigma=0.5)), run=other)


@pytest.mark.parametrize(
    "value", [3, [3], [{"after": "x", "recipe": {}}], [{"after": 2}], [{"after": 2, "recipe": []}]]
)
def test_a_manifest_with_an_extension_that_is_none_is_damaged(folder: Path, value: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"extended": value}))
    with pytest.raises(RunError, match="damaged: 'extended'"):
        fit(run=folder)


# From a result


@pytest.fixture(scope="module")
def result() -> esgd.Result:
    return fit()


def test_a_result_is_continued_without_a_folder(result: esgd.Result) -> None:
    more = fit(LONGER, resume=result)
    assert [line["k"] for line in more.history] == [1, 2, 3, 4]
    assert notes(more) == {3: "The run was extended after generation 2. Changed: generations: 2 → 4."}
    assert_no_elite_got_worse(more.history)
    assert len(result.history) == 2, "the result that was given stays as it is"


def test_what_is_continued_has_the_bits_of_a_run_that_was_longer_from_the_start() -> None:
    constant = replace(RECIPE, species=FIXED)
    more, whole = fit(constant.extended(4), resume=fit(constant)), fit(replace(constant, generations=4))
    assert torch.equal(more.population.rows, whole.population.rows)


def whole_and_killed(result: esgd.Result, home: Path) -> tuple[Path, Path]:
    """The folders of two runs that continue a result; the second was killed on its way."""
    whole, folder = home / "whole", home / "killed"
    fit(LONGER, resume=result, run=whole)
    with pytest.raises(KilledError):
        fit(LONGER, resume=result, run=folder, trackers=[dying(3)])
    return whole, folder


def test_a_result_is_continued_in_a_folder_of_its_own_also_after_a_kill(result: esgd.Result, tmp_path: Path) -> None:
    whole, folder = whole_and_killed(result, tmp_path)
    assert verify(whole).faults == ()
    again = fit(LONGER, resume=result, run=folder)
    assert bits(folder) == bits(whole)
    assert len(again.history) == 4


def test_a_folder_that_began_with_a_result_continues_without_it_as_long_as_it_has_a_checkpoint(
    result: esgd.Result, tmp_path: Path
) -> None:
    whole, folder = whole_and_killed(result, tmp_path)
    fit(LONGER, run=folder)
    assert bits(folder) == bits(whole)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lose_checkpoints(folder: Path) -> None:
    for path in (folder / "checkpoint").glob("0*"):
        (path / "state.json").unlink()


def test_a_folder_that_began_with_a_result_and_lost_its_checkpoints_needs_it_again(
    result: esgd.Result, tmp_path: Path
) -> None:
    whole, folder = whole_and_killed(result, tmp_path)
    lose_checkpoints(folder)
    before = files(folder)
    with pytest.raises(RunError, match="resume=result"):
        fit(LONGER, run=folder)
    assert files(folder) == before
    fit(LONGER, resume=result, run=folder)
    assert bits(folder) == bits(whole)


def test_a_finished_folder_that_began_with_a_result_is_not_overwritten(result: esgd.Result, tmp_path: Path) -> None:
    fit(LONGER, resume=result, run=tmp_path)
    lose_checkpoints(tmp_path)
    before = files(tmp_path)
    for given in ({}, {"resume": result}):
        with pytest.raises(RunError, match="a finished run, .* and no checkpoint that is whole"):
            fit(LONGER, run=tmp_path, **given)
    assert files(tmp_path) == before


def test_a_folder_that_began_with_another_result_is_refused(result: esgd.Result, tmp_path: Path) -> None:
    fit(LONGER, resume=result, run=tmp_path / "run")
    with pytest.raises(RunError, match="belongs to another run, .*\n  resumed"):
        fit(LONGER, resume=fit(seed=1), run=tmp_path / "run")


def test_a_population_begins_a_new_run(result: esgd.Result) -> None:
    fresh = fit(resume=result.population)
    assert [line["k"] for line in fresh.history] == [1, 2]
    assert fresh.fitness <= result.fitness
    assert notes(fresh) == {}


def test_rules_of_another_size_are_told_how_a_result_is_continued(result: esgd.Result) -> None:
    with pytest.raises(RecipeError, match=r"by its own rules with result.recipe.extended\(12\)"):
        esgd.fit(classify(batchnorm_mlp), seed=0, resume=result, progress=False)


def test_a_result_of_other_data_is_not_continued(result: esgd.Result) -> None:
    with pytest.raises(FitnessError, match="scored again"):
        fit(LONGER, classify(batchnorm_mlp, fitness=random_data(70, seed=9)), resume=result)


# The command line


def test_resume_extends_a_run_and_the_same_command_again_changes_nothing(tmp_path: Path) -> None:
    sizes = ["population=3", "offspring=3", "generations=1", "sgd_epochs=1"]
    sets = [word for each in sizes for word in ("--set", each)]
    assert command("run", "digits", *sets, "--run", "run", "--quiet", cwd=tmp_path).returncode == 0
    done = command("resume", "run", "--generations", "2", "--json", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["generations"], summary["guarantee_held"]) == (2, 2)
    assert any("extended after generation 1" in note for note in summary["notes"])
    again = command("resume", "run", "--generations", "2", "--json", "--quiet", cwd=tmp_path)
    assert json.loads(again.stdout) == summary
    assert command("verify", "run", cwd=tmp_path).returncode == 0
    fewer = command("resume", "run", "--generations", "1", "--quiet", cwd=tmp_path)
    assert fewer.returncode == 3
    assert "above the 2 generations" in fewer.stderr
