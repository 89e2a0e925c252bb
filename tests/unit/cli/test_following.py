"""The command line's ways to follow a run: --track, --progress, export."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.unit.cli.test_commands import TASK, esgd

TRACKER = """
class Lines:
    where, done = "lines.txt", 0
    def open(self, run): return self
    def write(self, record):
        with open("lines.txt", "a") as file: print(record["k"], record["best"], file=file)
    def close(self, model): pass
lines = Lines()
"""
FEW = ("--set", "generations=2", "--set", "population=3", "--engine", "loop")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(TASK + TRACKER)
    return tmp_path


@pytest.mark.slow
def test_track_sends_a_run_to_every_tracker_named(home: Path) -> None:
    tracks = ("--track", "tensorboard:tb", "--track", "mine:lines")
    done = esgd("run", "mine:task", *FEW, *tracks, "--run", "r", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["generations"] == 2
    assert "TensorBoard: tb/r" in done.stderr
    assert len((home / "lines.txt").read_text().splitlines()) == 2
    again = esgd("resume", "r", "--track", "tensorboard:tb", "--allow-code", "mine", cwd=home)
    assert again.returncode == 0, again.stderr
    events = EventAccumulator(str(home / "tb" / "r")).Reload()
    assert [event.step for event in events.Scalars("fitness/best")] == [1, 2]


def test_progress_json_leaves_standard_error_to_programs(home: Path) -> None:
    done = esgd("run", "mine:task", *FEW, "--progress", "json", "--json", cwd=home)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert [each["k"] for each in told if each["event"] == "generation"] == [1, 2]
    assert json.loads(done.stdout)["generations"] == 2


def test_export_names_its_files(home: Path) -> None:
    assert esgd("run", "mine:task", *FEW, "--run", "r", "--quiet", cwd=home).returncode == 0
    done = esgd("export", "r", "--format", "parquet", "--out", "tables", cwd=home)
    assert done.stdout.splitlines() == [
        "tables/generations.parquet",
        "tables/generation-0001.parquet",
        "tables/generation-0002.parquet",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "mine:task", "--track", "tensorbord:tb"], 2, ["Did you mean 'tensorboard'"]),
        (["run", "mine:task", "--track", "mine:number"], 2, ["7 among the trackers is not a tracker"]),
        (["run", "mine:task", "--progress", "bar"], 2, ["--progress 'bar'", "Did you mean 'bars'"]),
        (["export", "nowhere"], 3, ["'nowhere' is not the folder of a run"]),
        (["export", ".", "--format", "xlsx"], 2, ["format='xlsx'", "csv, parquet"]),
    ],
)
def test_bad_input_is_named_before_anything_is_done(
    home: Path, arguments: list[str], code: int, words: list[str]
) -> None:
    done = esgd(*arguments, cwd=home)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert not (home / "runs").exists()
