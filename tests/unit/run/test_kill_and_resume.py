"""`kill -9` at any moment, then the same command again: the same bits as a run that was never interrupted."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import esgd
from tests import warm
from tests.command import esgd as command

VICTIM = Path(__file__).with_name("victim.py")
MOMENTS = [
    ("loss", 60),  # in the middle of an SGD step
    ("fitness", 30),  # while offspring are evaluated
    *[("sync", number) for number in (2, 6, 11)],  # manifest, checkpoint, model; the campaign has all of them
]


def run(folder: Path, where: str = "nowhere", number: int = 0, *more: str) -> subprocess.CompletedProcess[str]:
    return warm.python(VICTIM, folder, where, str(number), *more, env=warm.environment())


def bits(folder: Path) -> dict[str, object]:
    """Everything a user can compare; seconds are the one thing that may differ."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["bytes_moved"]
    tensors = load_file(sorted((folder / "checkpoint").glob("0*"))[-1] / "tensors.safetensors")
    model = load_file(folder / "model.safetensors")
    return {
        "history": lines,
        "tensors": {name: tensor.numpy().tobytes() for name, tensor in tensors.items()},
        "model": {name: tensor.numpy().tobytes() for name, tensor in model.items()},
    }


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("quiet") / "run"
    assert run(folder).returncode == 0
    return bits(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "number"), MOMENTS)
def test_a_killed_run_ends_with_the_same_bits(
    quiet: dict[str, object], tmp_path: Path, where: str, number: int
) -> None:
    folder = tmp_path / "run"
    killed = run(folder, where, number)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = run(folder)
    assert finished.returncode == 0, finished.stderr
    assert bits(folder) == quiet


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(quiet: dict[str, object], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    deaths = [run(folder, "loss", 40).returncode for _ in range(2)]
    assert deaths == [-signal.SIGKILL] * 2
    assert run(folder).returncode == 0
    assert bits(folder) == quiet


@pytest.fixture(scope="module")
def quiet_funnels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    found = dict[str, dict[str, object]]()
    for recipe in ("funnel", "cifar"):
        folder = tmp_path_factory.mktemp("quiet") / recipe
        done = run(folder, "nowhere", 0, recipe, "loop:threads=1")
        assert done.returncode == 0, done.stderr
        found[recipe] = bits(folder)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "recipe"),
    [
        ("loop:threads=1", "funnel"),
        ("loop:threads=1", "cifar"),
        ("pool:workers=2", "funnel"),
        ("pool:workers=2", "cifar"),
    ],
)
def test_a_killed_funnel_ends_with_the_same_bits_on_every_engine(
    quiet_funnels: dict[str, dict[str, object]], tmp_path: Path, engine: str, recipe: str
) -> None:
    folder = tmp_path / "run"
    killed = run(folder, "sync", 12, recipe, engine)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    saved = len((folder / "history.jsonl").read_text().splitlines())
    assert 1 <= saved < len(quiet_funnels[recipe]["history"]), "it was killed on its way"  # type: ignore[arg-type]
    finished = run(folder, "nowhere", 0, recipe, engine)
    assert finished.returncode == 0, finished.stderr
    assert bits(folder) == quiet_funnels[recipe]


MORTAL = """
import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import esgd

x = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
run = Path(__file__).with_name("run")


def loss(output, target):
    if torch.is_grad_enabled() and os.environ.get("MORTAL") and (run / "manifest.json").exists():
        os._exit(9)
    return F.cross_entropy(output, target)


task = esgd.Supervised(lambda: nn.Linear(6, 2), loss, train=(x, y), fitness=(x, y), batch_size=16)


def fit(**options):
    given = {"engine": "vmap", "budget": "2s", "rules": "ours", **options}
    return esgd.fit(task, seed=0, run=run, progress=False, report=False, origin="mortal:task", **given)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a run has begun and saved nothing, with the program that began it."""
    home = tmp_path_factory.mktemp("killed")
    (home / "mortal.py").write_text(textwrap.dedent(MORTAL))
    place = os.pathsep.join([str(home), str(Path(esgd.__file__).parents[1])])
    environment = {**os.environ, "MORTAL": "1", "PYTHONPATH": place}
    done = subprocess.run([sys.executable, "-c", "import mortal; mortal.fit()"], env=environment)
    assert done.returncode == 9
    assert {path.name for path in (home / "run").iterdir()} <= {".lock", "manifest.json", "recipe.toml", "stop.json"}
    return home


@pytest.fixture
def home(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "home"))


def manifest_of(home: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((home / "run" / "manifest.json").read_text())
    return read


@pytest.mark.slow
@pytest.mark.parametrize("how", ["esgd resume", "the same call", "without an engine"])
def test_a_run_that_is_killed_before_its_first_generation_is_saved_keeps_its_manifest(
    home: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before = manifest_of(home)
    assert before["engine"]["kind"] == "vmap"
    assert before["rules"] == "ours"
    if how == "esgd resume":
        done = command("resume", "run", "--allow-code", "mortal", "--quiet", cwd=home)
        assert done.returncode == 0, done.stderr
    else:
        monkeypatch.syspath_prepend(str(home))
        monkeypatch.delitem(sys.modules, "mortal", raising=False)
        importlib.import_module("mortal").fit(**({} if how == "the same call" else {"engine": "auto"}))
    assert manifest_of(home) == before
    assert (home / "run" / "history.jsonl").exists()


@pytest.mark.slow
def test_a_run_that_has_saved_nothing_may_be_begun_with_another_engine_or_plan(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = manifest_of(home)
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.delitem(sys.modules, "mortal", raising=False)
    mortal = importlib.import_module("mortal")
    with pytest.raises(ZeroDivisionError):
        mortal.fit(engine="loop:threads=1", callbacks=[Failing()])
    assert manifest_of(home) == {**before, "engine": manifest_of(home)["engine"], "engine_because": ""}
    assert manifest_of(home)["engine"]["kind"] == "loop"
    mortal.fit(budget=None, rules=None, recipe=esgd.Recipe(population=2, offspring=2, generations=1, sgd_epochs=1))
    assert manifest_of(home)["id"] != before["id"]
    assert manifest_of(home)["recipe"]["generations"] == 1


class Failing:
    """It ends a run before anything is trained."""

    def on_run_begin(self, run: Any) -> None:
        raise ZeroDivisionError
