"""Weights & Biases, offline: read back from its own files what a run has written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import TYPE_CHECKING

import pytest

from esgd.errors import TrackerError
from esgd.integrations import WeightsAndBiases, curves
from tests.unit.integrations.runs import fit, interrupted

if TYPE_CHECKING:
    from wandb.proto.wandb_internal_pb2 import Record
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def records(folder: Path) -> list[Record]:
    """What is in the offline folders of a run, in order."""
    return [record for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")) for record in written(path)]


def written(path: Path) -> list[Record]:
    """The records of a file, once it has its last one: wandb's own process may write on after `finish`."""
    from wandb.proto.wandb_internal_pb2 import Record  # takes seconds, which only this file need pay

    found = list[Record]()
    for _ in range(600):
        found = [Record.FromString(data) for data in pieces(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"{path} was never finished: {found}")


def pieces(file: bytes) -> Iterator[bytes]:
    """The records in a .wandb file, which is LevelDB's log format: blocks of 32 KiB, and a head of 7 bytes before
    the first record and each part of one (checksum, length, kind: 1 whole, 2 first, 3 middle, 4 last)."""
    at, collected = 7, b""
    while at + 7 <= len(file):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = unpack("<HB", file[at + 4 : at + 7])
        collected += file[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4) and at <= len(file):
            yield collected
            collected = b""


def logged(folder: Path) -> dict[int, dict[str, str]]:
    """The curves by step; a step that is there twice fails."""
    lines = [record.history for record in records(folder) if record.WhichOneof("record_type") == "history"]
    steps = [line.step.num for line in lines]
    assert len(set(steps)) == len(steps), steps
    return {
        line.step.num: {item.key or ".".join(item.nested_key): item.value_json for item in line.item} for line in lines
    }


def test_curves_recipe_and_model_are_kept_for_a_later_sync(tmp_path: Path) -> None:
    result = fit(tmp_path / "mine", WeightsAndBiases("trial", offline=True, folder=tmp_path))
    told = logged(tmp_path)
    assert sorted(told) == [1, 2, 3]
    for line in result.history:
        for name, value in curves(line).items():
            if name != "seconds/total":  # the file knows what a checkpoint took, the result does not
                assert float(told[line["k"]][name]) == pytest.approx(value), name
    kinds = {record.WhichOneof("record_type") for record in records(tmp_path)}
    assert {"run", "history", "exit"} <= kinds
    (run,) = [record.run for record in records(tmp_path) if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.display_name) == ("trial", "mine")
    artifacts = [record.artifact for record in records(tmp_path) if record.WhichOneof("record_type") == "artifact"]
    assert any(artifact.type == "model" for artifact in artifacts)


def test_a_resumed_run_goes_on_under_the_same_id_without_doubled_steps(tmp_path: Path) -> None:
    tracker = WeightsAndBiases("trial", offline=True, folder=tmp_path)
    interrupted(tmp_path / "mine", tracker, after=2)
    assert sorted(logged(tmp_path)) == [1, 2]
    fit(tmp_path / "mine", tracker)
    assert sorted(logged(tmp_path)) == [1, 2, 3]
    ids = {record.run.run_id for record in records(tmp_path) if record.WhichOneof("record_type") == "run"}
    assert len(ids) == 1


def test_without_an_account_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="wandb login"):
        fit(tmp_path / "mine", WeightsAndBiases("trial", offline=False, folder=tmp_path))
    assert not (tmp_path / "mine" / "history.jsonl").exists()
