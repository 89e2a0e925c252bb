"""What installed packages offer is found by its name, and imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from esgd._names.entry_points import DATASETS, RENAMED, STUDIES, current_name, load, offered, package_of
from esgd._serialization import decode
from esgd.errors import MissingExtraError, TaskError
from tests.installed import STUDY, installed
from tests.warm import python

BROKEN = "raise RuntimeError('no luck')"
WITHOUT_EXTRA = "from esgd.errors import MissingExtraError\nraise MissingExtraError('jiwer', 'speech', 'Words')\n"


@pytest.fixture
def mylab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    groups = {
        STUDIES: {"mine": "mylab:study", "gone": "mylab:nowhere"},
        DATASETS: {"set": "mylab:download"},
        RENAMED: {"oldlab.species.Former": "mylab:Drawn"},
    }
    with installed(tmp_path, monkeypatch, "mylab", STUDY, groups) as place:
        yield place


def test_names_are_read_without_an_import(mylab: Path) -> None:
    (entry,) = offered(STUDIES)["mine"]
    assert package_of(entry) == "mylab"
    assert "set" in offered(DATASETS)
    assert current_name("oldlab.species:Former") == "mylab:Drawn"
    assert not (mylab / "imported").exists()
    assert load(STUDIES, "mine").about == "A line about it."
    assert (mylab / "imported").exists()


def test_a_former_name_is_read_as_the_current_one(mylab: Path) -> None:
    value = decode({"kind": "oldlab.species:Former", "lr": 0.5}, allow=["mylab"])
    assert (type(value).__module__, value.lr) == ("mylab", 0.5)


def test_what_cannot_be_imported_is_named_with_where_it_should_be(
    mylab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TaskError, match="'gone' is offered as 'mylab:nowhere', but importing it raised AttributeError"):
        load(STUDIES, "gone")
    with (
        installed(tmp_path, monkeypatch, "unlucky", BROKEN, {STUDIES: {"unlucky": "unlucky:study"}}),
        pytest.raises(TaskError, match="'unlucky:study', but importing it raised RuntimeError: no luck"),
    ):
        load(STUDIES, "unlucky")


def test_an_error_of_ours_in_an_import_speaks_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        installed(tmp_path, monkeypatch, "poor", WITHOUT_EXTRA, {STUDIES: {"poor": "poor:study"}}),
        pytest.raises(MissingExtraError, match="pip install"),
    ):
        load(STUDIES, "poor")


def test_a_name_that_two_packages_offer_is_refused_with_both(
    mylab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(tmp_path, monkeypatch, "yourlab", STUDY, {STUDIES: {"mine": "yourlab:study"}}) as place:
        with pytest.raises(TaskError, match="'mine' is offered more than once.*'mylab:study' and 'yourlab:study'"):
            load(STUDIES, "mine")
        assert not (place / "imported").exists()


@pytest.mark.slow
def test_importing_the_library_and_its_command_line_imports_no_experiment() -> None:
    program = "import sys, esgd, esgd.cli, esgd.studies; print([m for m in sys.modules if m.startswith('esgd_paper')])"
    done = python("-c", program)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_library_does_not_name_the_experiments() -> None:
    """Not in a string either: what is found through an entry point needs no name here."""
    sources = (Path(__file__).parents[2] / "src" / "esgd").rglob("*.py")
    assert [path.name for path in sources if "esgd_paper" in path.read_text()] == []
