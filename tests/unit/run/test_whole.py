"""A resume makes a folder whole or says what is wrong, and `verify` tells which it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model
from torch import nn
from torch.nn import functional as F

import esgd as library
from esgd.errors import RunError
from esgd.recipe import Recipe
from esgd.run import read_history, verify
from esgd.run.checkpoint import sealed
from esgd.run.folder import same_lines
from tests.command import esgd

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
RECIPE = Recipe(population=3, offspring=4, generations=3, sgd_epochs=1)


class Tied(nn.Module):
    """Two names for one parameter, and statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.second(torch.tanh(self.first(x))))


TASK = library.Supervised(Tied, F.cross_entropy, train=(X, Y), fitness=(X, Y), batch_size=16)


def fit(folder: Path, recipe: Recipe = RECIPE, **changes: object) -> library.Result:
    return library.fit(TASK, recipe, seed=0, run=folder, engine="loop", progress=False, report=False, **changes)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    fit(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.mark.slow
def test_a_finished_run_is_whole(folder: Path) -> None:
    assert verify(folder).faults == ()
    done = esgd("verify", folder, cwd=folder)
    assert done.returncode == 0
    assert "3 of 3 generations, whole" in done.stdout


def test_checksums_are_what_the_usual_tool_reads(folder: Path) -> None:
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("no sha256sum on this machine")
    assert subprocess.run([tool, "-c", "--quiet", "SHA256SUMS"], cwd=folder).returncode == 0


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def altered(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])


def removed(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


FILES = ["recipe.toml", "history.jsonl", "model.safetensors", "SHA256SUMS"]
INNER = ("state.json", "tensors.safetensors")
DEEP = ["checkpoint/history.jsonl", *(f"checkpoint/{k}/{name}" for k in ("000002", "000003") for name in INNER)]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [emptied, cut, altered, removed, a_folder, a_pipe])
@pytest.mark.parametrize("name", [*FILES, *DEEP])
def test_verify_names_what_is_damaged_and_resume_mends_it(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    damage(folder / name)
    found = esgd("verify", folder, cwd=folder)
    assert found.returncode == 3
    assert name in found.stdout or Path(name).parent.name in found.stdout
    if damage is a_folder and name in ("recipe.toml", "model.safetensors", "SHA256SUMS"):
        with pytest.raises(RunError, match=name):  # what is in it may be somebody's
            fit(folder)
        return
    fit(folder)
    assert verify(folder).faults == ()
    assert (folder / "model.safetensors").read_bytes() == whole


@pytest.mark.slow
def test_a_model_of_an_earlier_generation_is_found_and_replaced(folder: Path, tmp_path: Path) -> None:
    fit(tmp_path / "shorter", replace(RECIPE, generations=1))
    shutil.copy(tmp_path / "shorter" / "model.safetensors", folder / "model.safetensors")
    (fault, *_) = verify(folder).faults
    assert "model.safetensors is not the network that the run kept" in fault
    result = fit(folder)
    module = result.model
    load_model(module, folder / "model.safetensors")
    assert F.cross_entropy(module(X), Y).item() == pytest.approx(result.fitness)


def test_resume_leaves_nothing_behind_that_a_kill_left(folder: Path) -> None:
    (folder / ".model.safetensors.new").write_bytes(b"half")
    (folder / "checkpoint" / ".000003.new").mkdir()
    fit(folder)
    assert not list(folder.rglob(".*.new"))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [0, 1, 2, 3])
def test_a_line_that_was_cut_short_while_it_was_written_is_no_damage(folder: Path, whole: int) -> None:
    path = folder / "history.jsonl"
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:whole]) + lines[min(whole, 2)][:40])
    fit(folder)
    assert same_lines(read_history(path), [json.loads(line) for line in lines])
    assert verify(folder).faults == ()
    assert not (folder / "history.jsonl.damaged").exists()


def test_resume_removes_the_checkpoint_that_a_kill_kept_from_being_removed(folder: Path) -> None:
    shutil.copytree(folder / "checkpoint" / "000002", folder / "checkpoint" / "000001")
    (folder / "SHA256SUMS").unlink()
    fit(folder)
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == ["000002", "000003", "history.jsonl"]
    assert verify(folder).faults == ()


def test_resume_removes_an_older_checkpoint_of_another_run(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    fit(other, replace(RECIPE, offspring=5))
    older = folder / "checkpoint" / "000002"
    shutil.rmtree(older)
    shutil.copytree(other / "checkpoint" / "000002", older)
    fit(folder)
    assert not older.exists()
    assert verify(folder).faults == ()


def test_an_elite_that_got_worse_is_found(folder: Path) -> None:
    path = folder / "history.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["fitness"] = [fitness + 1 for fitness in lines[-1]["fitness"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert any("which Theorem 1 rules out" in fault for fault in verify(folder).faults)


def test_a_run_that_is_not_finished_is_whole_so_far(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit(folder)
    for path in [folder / "checkpoint" / "000003", folder / "SHA256SUMS"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    lines = (folder / "history.jsonl").read_text().splitlines(keepends=True)
    (folder / "history.jsonl").write_text("".join(lines[:2]))
    found = verify(folder)
    assert (found.done, found.planned) == (2, 3)
    assert all("model.safetensors" in fault for fault in found.faults), "the model is that of generation 3"


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped") / "run"
    fit(folder, stop=library.stopping.Target(100.0))
    return folder


@pytest.fixture
def stopped(stopped_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_run, tmp_path / "stopped"))


def test_verify_says_that_a_run_ended_early_and_why(stopped: Path) -> None:
    done = esgd("verify", stopped, cwd=stopped)
    assert done.returncode == 0
    assert f"1 of 3 generations, whole, ended early: {verify(stopped).stopped}" in done.stdout
    assert "100" in verify(stopped).stopped


@pytest.mark.parametrize("name", ["history.jsonl", "model.safetensors", "checkpoint/history.jsonl", "recipe.toml"])
def test_the_checksums_of_a_run_that_ended_early_are_checked(stopped: Path, name: str) -> None:
    with (stopped / name).open("ab") as file:
        file.write(b"\n")
    assert any(f"{stopped / name} was cut short or altered" in fault for fault in verify(stopped).faults)


def test_a_run_that_ended_early_and_has_no_checksums_is_not_whole(stopped: Path) -> None:
    (stopped / "SHA256SUMS").unlink()
    assert any("SHA256SUMS is missing" in fault for fault in verify(stopped).faults)


def test_a_finished_run_without_checkpoints_and_history_is_not_whole(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint")
    (folder / "history.jsonl").unlink()
    faults = verify(folder).faults
    for name in ("history.jsonl", "checkpoint/000003/tensors.safetensors"):
        assert any(f"{folder / name} is missing" in fault for fault in faults)


def test_a_damaged_stop_file_is_named(stopped: Path) -> None:
    (stopped / "stop.json").write_text("[]")
    assert any("stop.json is damaged" in fault for fault in verify(stopped).faults)


def test_what_is_no_run_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not the folder of a run"):
        verify(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deleted", "renamed", "replaced"])
def test_a_folder_that_is_lost_under_a_run_stops_it(tmp_path: Path, how: str) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if (folder / "history.jsonl").exists():  # in generation 2
            folder.rename(elsewhere) if how != "deleted" else shutil.rmtree(folder)
            if how == "replaced":
                folder.mkdir()
        return F.cross_entropy(output, target)

    task = library.Supervised(Tied, loss, train=(X, Y), fitness=(X, Y), batch_size=16)
    with pytest.raises(RunError, match="was moved or deleted while the run was going on"):
        library.fit(task, RECIPE, seed=0, run=folder, engine="loop", progress=False, report=False)
    assert not folder.exists() or not list(folder.iterdir())
    if how != "deleted":
        assert verify(elsewhere).faults == ()
        assert (
            len(library.fit(task, RECIPE, seed=0, run=tmp_path / "elsewhere", engine="loop", progress=False).history)
            == 3
        )


WHOLE = '{"origin": "digits", "recipe": {"generations": 3}, "seed": 0, "engine": {}, "data": {}, "network": {}}'


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "", "null", "[" * 100_000, '{"recipe": {}}', '{"origin": 3, "recipe": [], "seed": 0}', "\xff"),
        WHOLE.replace('"data": {}', '"data": {"a": ' + "[" * 900 + "]" * 900 + "}"),
        WHOLE.replace('"data": {}', '"data": {"a": "\\ud800"}'),
        WHOLE.replace('"seed": 0', '"seed": ' + "1" * 5000),
    ],
    ids=[
        *("{}", "list", "empty", "null", "deep", "keys missing", "wrong types", "no utf-8"),
        *("rather deep", "half a character", "long number"),
    ],
)
def test_a_manifest_that_is_none_is_refused_by_name(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    for words in (("resume", folder), ("verify", folder)):
        done = esgd(*words, cwd=folder)
        assert done.returncode == 3
        assert "manifest.json" in done.stderr
        assert "Traceback" not in done.stderr
    with pytest.raises(RunError, match="manifest.json"):
        fit(folder)


@pytest.mark.parametrize("text", ["{}", "[" * 100_000, '{"sha256": 1, "state": []}', "3"])
def test_a_checkpoint_whose_words_are_none_is_passed_over(folder: Path, text: str) -> None:
    (folder / "checkpoint" / "000003" / "state.json").write_text(text)
    fit(folder)
    assert verify(folder).faults == ()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["k", "digests", "population", "archive"])
def test_a_checkpoint_that_is_sealed_but_says_too_little_is_passed_over(folder: Path, key: str) -> None:
    file = folder / "checkpoint" / "000003" / "state.json"
    words = json.loads(file.read_text())["state"]
    del words[key]
    file.write_text(json.dumps(sealed(words)))
    assert esgd("verify", folder, cwd=folder).returncode == 3
    fit(folder)
    assert verify(folder).faults == ()


def test_a_file_in_place_of_a_checkpoint_is_passed_over(folder: Path) -> None:
    for k in ("000003", "000009"):
        shutil.rmtree(folder / "checkpoint" / k, ignore_errors=True)
        (folder / "checkpoint" / k).write_text("?")
    fit(folder)
    assert verify(folder).faults == ()
