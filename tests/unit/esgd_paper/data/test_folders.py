"""Where datasets are looked for, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from esgd.errors import DataError
from esgd.studies import download
from esgd_paper.data import AN4, CIFAR10, PTB, an4, cifar10, data_folder, ptb

TEXTS = {"ptb.train.txt": " a b \n", "ptb.valid.txt": " b \n", "ptb.test.txt": " a \n"}


def lay(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, content in TEXTS.items():
        (folder / name).write_text(content)
    return folder


def test_a_named_folder_goes_before_the_environment_and_that_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folder() == cache
    monkeypatch.setenv("ESGD_DATA", str(tmp_path / "mine"))
    assert data_folder() == tmp_path / "mine"
    assert data_folder(tmp_path / "given") == tmp_path / "given"


def test_a_tilde_means_the_home_folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ESGD_DATA", "~/sets")
    assert data_folder() == tmp_path / "sets"


@pytest.mark.parametrize("inside", ["ptb", ".", "simple-examples/data"])
def test_a_set_is_found_in_its_folder_in_the_named_one_and_as_its_archive_unpacks(tmp_path: Path, inside: str) -> None:
    lay(tmp_path / "data" / inside)
    assert ptb(tmp_path / "data").vocabulary == ("a", "b", "<eos>")


def test_the_cache_is_used_where_the_environments_folder_has_not_got_the_set(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(cache / "ptb")
    monkeypatch.setenv("ESGD_DATA", str(tmp_path))
    assert len(ptb().train) == 3


@pytest.mark.parametrize(
    ("read", "file", "folder"),
    [(cifar10, "data_batch_1.bin", "cifar-10-batches-bin"), (ptb, "ptb.train.txt", "ptb"), (an4, "fileids", "an4")],
)
def test_missing_data_says_which_file_every_place_and_how_to_get_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: type, file: str, folder: str
) -> None:
    monkeypatch.setenv("ESGD_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match="was not found") as absent:
        read()
    for expected in (
        file,
        tmp_path / "mine" / folder,
        cache / folder,
        f"esgd data {read.__name__}",
        "--data",
        "$ESGD_DATA",
    ):
        assert str(expected) in str(absent.value)


def test_a_named_folder_is_the_only_one_looked_at(cache: Path, tmp_path: Path) -> None:
    lay(cache / "ptb")
    with pytest.raises(DataError, match="was not found") as absent:
        ptb(tmp_path / "elsewhere")
    assert str(cache) not in str(absent.value)


def test_an_incomplete_set_names_what_is_missing(tmp_path: Path) -> None:
    (lay(tmp_path / "ptb") / "ptb.valid.txt").unlink()
    with pytest.raises(DataError, match="incomplete: .*/ptb has no ptb.valid.txt"):
        ptb(tmp_path)


def test_the_pickled_edition_is_recognised_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(DataError, match="cifar-10-batches-py is the Python version: pickles, which are not read"):
        cifar10(tmp_path)


def test_the_audio_edition_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "an4" / "wav").mkdir(parents=True)
    with pytest.raises(DataError, match="an4/wav is the audio edition"):
        an4(tmp_path)


def test_a_misspelt_dataset_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'cifar' is not a data set .* Did you mean 'cifar10'?"):
        download("cifar", tmp_path)


def test_every_dataset_has_a_line_about_it() -> None:
    about = [dataset.about for dataset in (AN4, CIFAR10, PTB)]
    assert all("\n" not in line and "MiB" in line for line in about)
