"""Where a run folder is: ~ is the home folder, an address on the network is none, and files have the umask's mode."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import esgd
from esgd.errors import RunError
from tests.command import esgd as command
from tests.small import classify, mlp

RECIPE = esgd.Recipe(population=2, offspring=2, generations=1, sgd_epochs=1)


def fit(run: str | Path) -> esgd.Result:
    return esgd.fit(classify(), RECIPE, seed=0, run=run, engine=esgd.Loop(threads=1), progress=False)


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = fit("~/runs/mine")
    assert result.run == tmp_path / "runs" / "mine"
    assert not (tmp_path / "~").exists()
    assert esgd.load("~/runs/mine", mlp).fitness == result.fitness


@pytest.mark.parametrize("url", ["s3://bucket/run", "gs://bucket/run", "memory://run", "file:///run", "hf://a/b"])
def test_an_address_is_refused_and_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (lambda: fit(url), lambda: fit(Path(url)), lambda: esgd.load(url, mlp)):
        with pytest.raises(RunError, match="is an address of .*Use a local or mounted folder"):
            call()
    done = command("run", "digits", "--run", url, "--quiet", cwd=tmp_path)
    assert done.returncode == 3
    assert f"{url!r} is an address" in done.stderr or "address of file" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (3, "run=3 is a int"),
        (False, "run=False is a bool"),
        (b"run", "run=b'run' is a bytes"),
        ("a\0b", r"run='a\x00b' has a null character"),
        ("", "run='' is empty"),
    ],
)
def test_what_is_no_path_is_refused_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (lambda: fit(value), lambda: esgd.load(value, mlp)):
        with pytest.raises(RunError, match=re.escape(named)):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("verify",), ("resume",), ("report",), ("run", "digits", "--quiet", "--run")])
def test_an_empty_path_on_the_command_line_is_not_the_current_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    fit(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = command(*words, "", cwd=tmp_path)
    assert done.returncode == 2
    assert "the path '' is empty" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_the_home_of_nobody_is_named() -> None:
    with pytest.raises(RunError, match="names no folder"):
        fit("~nobody-of-this-name/run")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_every_file_of_a_run_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    fit(tmp_path / "run")
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != ".lock"]
    assert {path.name for path in files} >= {"model.safetensors", "tensors.safetensors", "state.json"}
    assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files} == {
        path.name: oct(0o640) for path in files
    }
