"""A run folder that comes from somebody else is data: whatever it says, it runs no code and reaches nothing outside."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import esgd as library
from esgd.errors import RunError
from tests.command import esgd

SMALL = ["population=3", "offspring=4", "elites=0.6", "generations=3", "sgd_epochs=1", "start=random_start"]
TASK = """
import torch
from torch import nn
from torch.nn import functional as F
import esgd

x = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
task = esgd.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
"""
PAYLOAD = TASK + "from pathlib import Path\nPath(__file__).with_name('canary').touch()\n"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a task, `mine`, a foreign module, `payload`, and a finished run of the task."""
    home = tmp_path_factory.mktemp("original")
    (home / "mine.py").write_text(TASK)
    (home / "payload.py").write_text(PAYLOAD)
    sets = [word for each in SMALL for word in ("--set", each)]
    done = esgd("run", "mine:task", "--run", "run", "--engine", "loop", "--quiet", *sets, cwd=home)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def home(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "home"))


def resume(home: Path, *words: str) -> Any:
    return esgd("resume", "run", "--quiet", "--allow-code", "mine", *words, cwd=home)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def edit_checkpoints(home: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Alter what the checkpoints say and seal them again: the hash is no signature."""
    for path in (home / "run" / "checkpoint").glob("*/state.json"):
        words = json.loads(path.read_text())["state"]
        change(words)
        text = json.dumps(words, sort_keys=True, ensure_ascii=False)
        path.write_text(json.dumps({"sha256": sha256(text.encode()).hexdigest(), "state": words}))


@pytest.mark.slow
def test_a_run_of_ones_own_task_is_resumed_with_the_callers_word(home: Path) -> None:
    refused = esgd("resume", "run", cwd=home)
    assert refused.returncode == 3
    assert "'mine:task' names code of the package 'mine'" in refused.stderr
    assert "--allow-code mine" in refused.stderr
    assert "manifest.json" in refused.stderr
    assert resume(home).returncode == 0
    assert esgd("run", "mine:task", "--run", "run", *["--set", "population=3"], cwd=home).returncode == 3


def test_the_name_of_a_task_in_a_manifest_runs_nothing(home: Path) -> None:
    edit(home / "run" / "manifest.json", lambda manifest: manifest.update(origin="payload:task"))
    refused = resume(home)
    assert refused.returncode == 3
    assert "'payload:task'" in refused.stderr
    assert not (home / "canary").exists()


@pytest.mark.parametrize("kind", ["os:system", "payload:Thing", "subprocess:Popen"])
@pytest.mark.parametrize("place", ["engine", "species"])
def test_a_manifest_that_names_code_is_refused_by_name(home: Path, kind: str, place: str) -> None:
    call = {"kind": kind, "command": f"touch {home / 'canary'}", "args": ["touch", str(home / "canary")]}

    def change(manifest: dict[str, Any]) -> None:
        (manifest if place == "engine" else manifest["recipe"])[place] = call

    edit(home / "run" / "manifest.json", change)
    refused = resume(home)
    assert refused.returncode == 3
    assert kind in refused.stderr
    assert "manifest.json" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (home / "canary").exists()


def test_fit_runs_nothing_that_a_folder_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(home))
    edit(home / "run" / "manifest.json", lambda m: m.update(engine={"kind": "os:system", "command": "touch canary"}))
    from_here = pytest.importorskip("mine")
    recipe = library.Recipe.from_dict(json.loads((home / "run" / "manifest.json").read_text())["recipe"])
    with pytest.raises(RunError, match="'os:system' names code of Python itself"):
        library.fit(from_here.task, recipe, seed=0, run=home / "run", progress=False)
    assert not (home / "canary").exists()


def test_a_checkpoint_that_names_code_is_refused_by_name(home: Path) -> None:
    def change(words: dict[str, Any]) -> None:
        words["population"]["policies"][0] = {"optimizer": "payload:Best", "lr": 0.1}

    edit_checkpoints(home, change)
    refused = resume(home)
    assert refused.returncode == 3
    assert "'payload:Best' names code" in refused.stderr
    assert "checkpoint" in refused.stderr
    assert not (home / "canary").exists()


@pytest.mark.slow
def test_a_recipe_in_toml_names_code_only_with_the_callers_word(home: Path) -> None:
    recipe = "task = 'digits'\n[recipe.mutation]\nkind = 'payload:Mutation'\n"
    (home / "x.toml").write_text(recipe)
    refused = esgd("explain", "x.toml", cwd=home)
    assert refused.returncode == 2
    assert "'x.toml'" in refused.stderr
    assert "--allow-code payload" in refused.stderr
    assert not (home / "canary").exists()
    (home / "x.toml").write_text("task = 'payload:task'\n")
    assert esgd("explain", "x.toml", cwd=home).returncode == 2
    assert not (home / "canary").exists()
    assert esgd("explain", "x.toml", "--allow-code", "payload", "--json", cwd=home).returncode == 0
    assert (home / "canary").exists()


def test_set_on_the_command_line_names_code_only_with_the_callers_word(home: Path) -> None:
    refused = esgd("explain", "digits", "--set", "mutation=payload:Mutation", cwd=home)
    assert refused.returncode == 2
    assert "--allow-code payload" in refused.stderr
    assert not (home / "canary").exists()


def test_the_address_of_a_cluster_in_a_manifest_is_not_followed(home: Path) -> None:
    engine = {"kind": "ray", "address": "192.0.2.1:6379", "inner": {"kind": "loop"}}
    edit(home / "run" / "manifest.json", lambda manifest: manifest.update(engine=engine))
    refused = resume(home)
    assert refused.returncode == 3
    assert "192.0.2.1:6379" in refused.stderr
    assert "--engine ray:address=" in refused.stderr
    assert resume(home, "--engine", "loop").returncode == 0


def test_a_checkpoint_of_another_run_is_refused_by_name(home: Path) -> None:
    sets = [word for each in [*SMALL, "mutation.sigma=0.5"] for word in ("--set", each)]
    other = esgd("run", "mine:task", "--run", "other", "--engine", "loop", "--quiet", *sets, cwd=home)
    assert other.returncode == 0, other.stderr
    shutil.rmtree(home / "run" / "checkpoint" / "000003")
    shutil.copytree(home / "other" / "checkpoint" / "000003", home / "run" / "checkpoint" / "000003")
    refused = resume(home)
    assert refused.returncode == 3
    assert "000003 belongs to another run than manifest.json" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "history.jsonl", "SHA256SUMS", "report.html", "run.png"])
@pytest.mark.parametrize("form", ["{}", ".{}.new"])
def test_resume_writes_through_no_link(home: Path, name: str, form: str) -> None:
    victim = home / "victim"
    victim.write_bytes(b"mine")
    if name == "history.jsonl" or form != "{}":
        for path in (home / "run" / "checkpoint").glob("000003"):
            shutil.rmtree(path)  # a generation is to be made again
    link = home / "run" / form.format(name)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    done = resume(home)
    assert victim.read_bytes() == b"mine"
    assert done.returncode == 0, done.stderr
    assert not (home / "run" / name).is_symlink()
    assert esgd("verify", "run", cwd=home).returncode == 0


@pytest.mark.parametrize("what", ["checkpoint", ".lock"])
def test_a_link_in_place_of_what_a_run_owns_is_refused(home: Path, what: str) -> None:
    elsewhere = home / "elsewhere"
    path = home / "run" / what
    if what == "checkpoint":
        path.rename(elsewhere)
    else:
        elsewhere.write_bytes(b"mine")
        path.unlink(missing_ok=True)
    path.symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir()) if elsewhere.is_dir() else elsewhere.read_bytes()
    refused = resume(home)
    assert refused.returncode == 3
    assert "Traceback" not in refused.stderr
    assert f"{what} is a link" in refused.stderr or f"{what}' is not a regular file" in refused.stderr
    assert (sorted(elsewhere.iterdir()) if elsewhere.is_dir() else elsewhere.read_bytes()) == before


def test_a_link_to_nothing_in_place_of_the_lock_is_refused(home: Path) -> None:
    lock = home / "run" / ".lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(home / "nothing")
    refused = resume(home)
    assert refused.returncode == 3
    assert ".lock' is not a regular file" in refused.stderr
    assert not (home / "nothing").exists()


def test_a_pipe_in_place_of_the_lock_is_refused(home: Path) -> None:
    """A process can hold a lock on it; but a run makes a file, and `resume` leaves a folder whole."""
    lock = home / "run" / ".lock"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    refused = resume(home)
    assert refused.returncode == 3
    assert ".lock' is not a regular file" in refused.stderr
    lock.unlink()
    assert resume(home).returncode == 0


def test_a_link_in_place_of_the_checkpoints_deletes_nothing_elsewhere(home: Path) -> None:
    elsewhere = home / "elsewhere"
    (home / "run" / "checkpoint").rename(elsewhere)
    (elsewhere / ".precious.new").write_text("mine")
    (home / "run" / "checkpoint").symlink_to(elsewhere)
    assert resume(home).returncode == 3
    assert (elsewhere / ".precious.new").read_text() == "mine"


def test_a_link_in_place_of_a_checkpoint_is_no_checkpoint(home: Path) -> None:
    elsewhere, link = home / "elsewhere", home / "run" / "checkpoint" / "000003"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    found = esgd("verify", "run", cwd=home)
    assert found.returncode == 3
    assert "000003" in found.stdout
    done = resume(home)
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before
    assert not link.is_symlink()
    assert esgd("verify", "run", cwd=home).returncode == 0


def test_files_elsewhere_are_not_summed(home: Path) -> None:
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("mine")
    (home / "run" / "checkpoint" / "more").symlink_to(elsewhere)
    (home / "run" / "SHA256SUMS").unlink()
    done = resume(home)
    assert done.returncode == 0, done.stderr
    assert "secret" not in (home / "run" / "SHA256SUMS").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "history.jsonl", "recipe.toml", "SHA256SUMS"])
def test_what_is_behind_a_link_is_not_read(home: Path, name: str) -> None:
    link = home / "run" / name
    link.rename(home / "elsewhere")
    link.symlink_to(home / "elsewhere")
    found = esgd("verify", "run", cwd=home)
    assert found.returncode == 3
    assert name in found.stdout + found.stderr
    done = resume(home)
    if name == "manifest.json":
        assert done.returncode == 3
        assert "manifest.json is a link" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert esgd("verify", "run", cwd=home).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../../victim", "*", "' OR 1=1", "x\0y", "", 5])
def test_trackers_are_told_no_id_that_is_a_path(home: Path, name: Any) -> None:
    edit(home / "run" / "manifest.json", lambda manifest: manifest.update(id=name))
    done = resume(home, "--track", "tensorboard:tb")
    assert done.returncode == 0, done.stderr
    (events,) = (home / "tb" / "run").glob("events.*")
    assert re.fullmatch(r"[0-9a-f]{32}", events.name.rpartition(".")[2])


def test_a_tracker_writes_through_no_link(home: Path) -> None:
    victim = home / "victim"
    victim.write_bytes(b"mine")
    (home / "tb" / "run").mkdir(parents=True)
    (home / "tb" / "run" / "model.safetensors").symlink_to(victim)
    done = resume(home, "--track", "tensorboard:tb")
    assert done.returncode == 0, done.stderr
    assert victim.read_bytes() == b"mine"
    assert (home / "tb" / "run" / "model.safetensors").read_bytes() == (home / "run" / "model.safetensors").read_bytes()


def test_a_last_line_without_its_end_is_written_again(home: Path) -> None:
    shutil.rmtree(home / "run" / "checkpoint" / "000003")
    history = home / "run" / "history.jsonl"
    whole = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(whole[:2]).removesuffix(b"\n"))
    assert resume(home).returncode == 0
    assert len(history.read_bytes().splitlines()) == 3
    assert esgd("verify", "run", cwd=home).returncode == 0


@pytest.mark.parametrize(
    "origin",
    [
        "esgd.engines.cluster.resources:x",  # ours, and it imports ray, which the folder has too
        "torch.optim.optimizer:torch.ctypes.string_at",
        "esgd.run.files:remove",
        "mine:esgd.run.files.remove",
        "mine:torch.hub.load",
    ],
)
def test_a_task_that_a_folder_names_is_never_code_of_ours_or_from_elsewhere(home: Path, origin: str) -> None:
    (home / "ray.py").write_text(PAYLOAD)
    edit(home / "run" / "manifest.json", lambda manifest: manifest.update(origin=origin))
    done = resume(home)
    assert done.returncode == 3, done.stdout
    assert "names code of" in done.stderr
    assert not (home / "canary").exists()


@pytest.mark.parametrize("network", ["fifo", ".", "/dev/null"])
def test_a_network_that_is_no_file_is_named_and_not_waited_for(home: Path, network: str) -> None:
    os.mkfifo(home / "fifo")
    done = esgd("run", "mine:task", "--quiet", "--set", f"start={{kind='perturbed',network='{network}'}}", cwd=home)
    assert done.returncode in (2, 3), done.stderr
    assert "Traceback" not in done.stderr
    assert network in done.stderr


def test_what_lies_in_a_folder_that_is_no_run_stays_there(home: Path) -> None:
    (home / "theirs" / ".thesis.new").mkdir(parents=True)
    (home / "theirs" / ".thesis.new" / "chapter").touch()
    done = esgd("run", "mine:task", "--quiet", "--run", "theirs", cwd=home)
    assert done.returncode == 3
    assert "is not the folder of a run" in done.stderr
    assert [path.name for path in (home / "theirs").iterdir()] == [".thesis.new"]
    assert (home / "theirs" / ".thesis.new" / "chapter").exists()


def test_a_history_with_columns_without_end_is_refused(home: Path) -> None:
    def widen(line: dict[str, Any]) -> None:
        line["policies"][0]["settings"] = {f"own{number}": 1 for number in range(600)}

    lines = [json.loads(line) for line in (home / "run" / "history.jsonl").read_text().splitlines()]
    widen(lines[0])
    (home / "run" / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = esgd("export", "run", cwd=home)
    assert done.returncode == 3
    assert "more than the 500 that a table may have" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("x" * 5000,),
        ("a\0.toml",),
        ("mine:task", "--set", "mating={kind='raced',mating=5}"),
        ("mine:task", "--set", "mating={kind='raced',sets=1000000000000}"),
        ("mine:task", "--set", "sgd_epochs=1e308"),
        ("mine:task", "--set", "species.species.1=words", "--set", "species.species.1.lr=2"),
        ("mine:task", "--engine", "vmap:device=meta"),
    ],
    ids=lambda words: words[-1][:40],
)
def test_nonsense_is_refused_in_a_sentence(home: Path, words: tuple[str, ...]) -> None:
    done = esgd("run", *words, "--quiet", "--run", "new", cwd=home)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "new").exists()


def test_a_name_that_is_no_package_is_not_repeated_as_advice(home: Path) -> None:
    strange = "x;curl evil\x1b[2J.y:Z"
    edit(home / "run" / "manifest.json", lambda manifest: manifest["recipe"].update(mating={"kind": strange}))
    done = resume(home)
    assert done.returncode in (2, 3)
    assert "--allow-code x;curl" not in done.stderr
    assert "\x1b[2J" not in done.stderr
