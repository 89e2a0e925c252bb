"""`kill -9` at any moment, then the same command again: the same bits as a run that was never interrupted."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests import warm

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
