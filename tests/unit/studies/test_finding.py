"""From what a user writes to a study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from esgd._names.entry_points import DATASETS, STUDIES
from esgd._names.study_names import study_names
from esgd.errors import DataError, ForeignCodeError, RecipeError, TaskError
from esgd.studies import download, find_study
from tests.command import esgd
from tests.installed import STUDY, installed


@pytest.fixture
def mylab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with studies: `mine` as a value, `scaled` as a function, and two that do not work."""
    names = ("scaled", "wrong", "failing")
    studies = {"mine": "mylab:study", "digits": "mylab:study", **{name: f"mylab:{name}" for name in names}}
    groups = {STUDIES: studies, DATASETS: {"set": "mylab:download"}}
    with installed(tmp_path, monkeypatch, "mylab", STUDY, groups) as place:
        yield place


@pytest.mark.usefixtures("mylab")
def test_a_study_of_an_installed_package_is_found_by_its_name() -> None:
    assert {"digits", "mine", "scaled"} <= set(study_names())
    found = find_study("mine")
    assert (found.name, found.about, found.offered_by) == ("mine", "A line about it.", "mylab")


@pytest.mark.usefixtures("mylab")
def test_a_study_that_is_a_function_is_asked_for_a_scale_and_a_data_folder(tmp_path: Path) -> None:
    assert find_study("scaled").about == "mini from None"
    paper = find_study("scaled", scale="paper", data=tmp_path)
    assert (paper.name, paper.about) == ("scaled@paper", f"paper from {tmp_path}")
    assert find_study("scaled@paper").about == "paper from None"


@pytest.mark.usefixtures("mylab")
def test_what_is_built_in_cannot_be_replaced() -> None:
    assert find_study("digits").about.startswith("8×8 images")
    assert study_names().count("digits") == 1


@pytest.mark.usefixtures("mylab")
def test_a_scale_or_a_data_folder_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="scale='papre' is not a scale of scaled. Did you mean 'paper'?"):
        find_study("scaled", scale="papre")
    with pytest.raises(RecipeError, match="'scaled@paper' is asked for with scale='mini'. Say one of the two"):
        find_study("scaled@paper", scale="mini")
    for name in ("digits", "mine"):
        with pytest.raises(RecipeError, match=f"scale='paper' is not a scale of {name}"):
            find_study(name, scale="paper")
        with pytest.raises(RecipeError, match=f"{name} brings its own data"):
            find_study(name, data=tmp_path)
    with pytest.raises(RecipeError, match="only studies with a name have a scale"):
        find_study("mine:task", scale="paper")


def test_a_toml_file_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("task = 'digits'\n[recipe]\ngenerations = 7\n")
    (tmp_path / "link.toml").symlink_to(tmp_path / "real.toml")
    assert find_study(str(tmp_path / "link.toml")).recipe.generations == 7
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    with pytest.raises(RecipeError, match="loop.toml"):
        find_study(str(tmp_path / "loop.toml"))


@pytest.mark.usefixtures("mylab")
def test_what_gives_no_study_is_named() -> None:
    with pytest.raises(TaskError, match="the study 'wrong' is 3. What is offered in 'esgd.studies' must give a Study"):
        find_study("wrong")
    with pytest.raises(TaskError, match=r"the study 'failing', called with .*, raised KeyError: 'frames'"):
        find_study("failing")


@pytest.mark.usefixtures("mylab")
def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(RecipeError, match="'scald' is not a task. Did you mean 'scaled'?"):
        find_study("scald")


@pytest.mark.usefixtures("mylab")
def test_studies_are_listed_and_one_that_fails_hides_no_other(tmp_path: Path) -> None:
    listed = esgd("list", cwd=tmp_path).stdout
    assert "mine                A line about it." in listed
    assert "failing             cannot be loaded: the study 'failing'" in listed
    assert listed.index("failing ") < listed.index("scaled ")


def test_a_data_set_of_an_installed_package_is_found_by_its_name(mylab: Path, tmp_path: Path) -> None:
    assert download("set", tmp_path) == tmp_path / "set"
    with pytest.raises(DataError, match="'sett' is not a data set that can be downloaded. Did you mean 'set'?"):
        download("sett", tmp_path)


# Which code may be named


SLOWER = "task = '{}'\n[recipe.species]\nkind = 'mylab:Drawn'\nlr = 0.2\n"


@pytest.mark.usefixtures("mylab")
def test_a_recipe_of_an_offered_study_may_name_values_of_the_package_that_offers_it(tmp_path: Path) -> None:
    path = tmp_path / "slower.toml"
    path.write_text(SLOWER.format("mine"))
    assert find_study(str(path)).recipe.species.lr == 0.2
    path.write_text(SLOWER.format("digits"))
    with pytest.raises(ForeignCodeError, match="'mylab:Drawn' names code .* --allow-code mylab"):
        find_study(str(path))


@pytest.mark.slow
def test_a_run_of_an_offered_study_resumes_without_another_word(mylab: Path, tmp_path: Path) -> None:
    words = ("--run", "run", "--engine", "loop", "--quiet", "--set", "species.lr=0.3")
    done = esgd("run", "mine", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"mylab:Drawn"' in (tmp_path / "run" / "manifest.json").read_text()
    assert '"mylab:Waning"' in (tmp_path / "run" / "checkpoint" / "000002" / "state.json").read_text()
    resumed = esgd("resume", "run", "--quiet", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert esgd("verify", "run", cwd=tmp_path).returncode == 0


def test_a_run_of_another_study_may_not_name_the_package(mylab: Path, tmp_path: Path) -> None:
    assert esgd("run", "mine", "--run", "run", "--engine", "loop", "--quiet", cwd=tmp_path).returncode == 0
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"origin": "mine"', '"origin": "digits"'))
    (mylab / "imported").unlink()
    refused = esgd("resume", "run", "--quiet", cwd=tmp_path)
    assert refused.returncode == 3
    assert "--allow-code mylab" in refused.stderr
    assert not (mylab / "imported").exists()


def test_a_package_that_is_installed_and_offers_no_study_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slower.toml"
    path.write_text(SLOWER.format("digits"))
    with installed(tmp_path, monkeypatch, "mylab", STUDY, {"console_scripts": {"mylab": "mylab:task"}}) as place:
        with pytest.raises(ForeignCodeError, match="--allow-code mylab"):
            find_study(str(path))
        with pytest.raises(ForeignCodeError, match="--allow-code mylab"):
            find_study("mylab:study")
        assert not (place / "imported").exists()
