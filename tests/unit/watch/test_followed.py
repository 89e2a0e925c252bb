"""A run that is being written is followed line by line, and nothing is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import time
from typing import Any

import pytest

from esgd.errors import RunError
from esgd.run.following import HistoryFollower
from esgd.watch import Followed, Runs
from tests.unit.watch.histories import line, write_run


def test_new_lines_are_read_as_they_come(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=2, planned=3)
    followed = Followed(folder, "run")
    followed.look()
    assert (followed.k, followed.facts()["status"]) == (2, "running")
    with (folder / "history.jsonl").open("a") as file:
        file.write(json.dumps(line(3)) + "\n")
    followed.look()
    assert [each["k"] for each in followed.after(1)["lines"]] == [2, 3]
    assert followed.facts()["status"] == "finished"


def test_a_run_that_a_rule_has_stopped_says_why_until_it_continues(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=2, planned=3)
    (folder / "stop.json").write_text('{"rules": [], "k": 2, "why": "Target(0.5): best is 0.4"}')
    followed = Followed(folder, "run")
    followed.look()
    assert followed.facts()["status"] == "stopped early: Target(0.5): best is 0.4"
    (folder / "stop.json").write_text('{"rules": 3}')
    assert followed.facts()["status"] == "running", "a damaged file is said by esgd resume"


def test_a_half_written_line_is_not_there_yet(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=1)
    followed, text = Followed(folder, "run"), json.dumps(line(2)) + "\n"
    with (folder / "history.jsonl").open("a") as file:
        file.write(text[:40])
        file.flush()
        followed.look()
        assert (followed.k, followed.fault) == (1, "")
        file.write(text[40:])
    followed.look()
    assert (followed.k, followed.fault) == (2, "")


def test_a_damaged_line_is_named_and_what_stands_before_it_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=2)
    with (folder / "history.jsonl").open("a") as file:
        file.write('{"k": 3, "best"\n' + json.dumps(line(4)) + "\n")
    followed = Followed(folder, "run")
    followed.look()
    assert followed.k == 2
    assert "Line 3 of run/history.jsonl is no record of its generation: it is not JSON" in followed.fault
    assert "Resuming the run mends the file" in followed.fault


def test_a_line_of_another_format_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=1)
    with (folder / "history.jsonl").open("a") as file:
        file.write('{"generation": 2, "loss": 0.5}\n')
    followed = Followed(folder, "run")
    followed.look()
    assert "it has no 'k'" in followed.fault


def test_a_history_that_was_rewritten_is_read_anew(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=4)
    followed = Followed(folder, "run")
    followed.look()
    before = followed.facts()
    aside = folder / "aside"
    aside.write_text("".join(json.dumps(line(k)) + "\n" for k in (1, 2)))
    aside.replace(folder / "history.jsonl")
    followed.look()
    assert followed.k == 2
    assert followed.facts()["age"] == before["age"] + 1


def test_a_run_that_says_nothing_for_long_is_called_silent(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=1, planned=3)
    for name in ("history.jsonl", "manifest.json"):
        os.utime(folder / name, (0, 0))
    followed = Followed(folder, "run")
    followed.look()
    assert followed.facts()["status"].startswith("silent for")


def test_following_writes_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=2)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.iterdir()]}
    runs = Runs([tmp_path])
    runs.listed()
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.iterdir()]} == before


def test_runs_are_found_below_a_folder_and_inside_runs_nothing_is(tmp_path: Path) -> None:
    for name in ("a/esgd", "a/single", "b"):
        write_run(tmp_path / name, generations=1)
    write_run(tmp_path / "b" / "checkpoint" / "000001", generations=1)
    assert [run["name"] for run in Runs([tmp_path]).listed()["runs"]] == ["a/esgd", "a/single", "b"]


def test_the_latest_run_and_those_beside_it_are_proposed(tmp_path: Path) -> None:
    for age, name in enumerate(("b/esgd", "a/single", "a/esgd")):
        folder = write_run(tmp_path / name, generations=1)
        for file in folder.iterdir():
            os.utime(file, (1000 + age, 1000 + age))
    listed = Runs([tmp_path]).listed()
    names = {run["id"]: run["name"] for run in listed["runs"]}
    assert [names[id_] for id_ in listed["chosen"]] == ["a/esgd", "a/single"]


def test_a_run_may_begin_and_vanish_while_it_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esgd.watch.runs.EVERY", 0.0)
    runs = Runs([tmp_path])
    assert runs.listed() == {"runs": [], "chosen": []}
    folder = write_run(tmp_path / "late", generations=1)
    assert [run["name"] for run in runs.listed()["runs"]] == ["late"]
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert runs.listed()["runs"] == []


@pytest.mark.parametrize(("name", "words"), [("nowhere", "not there"), ("file", "a file")])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=f"is {words}. `esgd watch` follows the runs in a folder"):
        Runs([tmp_path / name])


@pytest.mark.parametrize(
    "change",
    [
        {"ledger": {"sgd_forward": 1}},
        {"best": 10**400},
        {"k": 7},
        {"births": [{"id": "2.1.0", "parents": ["2.1.0"]}, {"id": "0.0.1", "parents": []}]},
        {"births": []},
    ],
    ids=["ledger", "huge", "order", "own parent", "births"],
)
def test_whatever_is_odd_about_a_line_is_named_and_nothing_breaks(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = write_run(tmp_path / "run", generations=1)
    with (folder / "history.jsonl").open("a") as file:
        file.write(json.dumps({**line(2), **change}) + "\n" + json.dumps(line(3)) + "\n")
    followed = Followed(folder, "run")
    followed.look()
    assert "Line 2 of run/history.jsonl" in followed.fault
    assert [each["k"] for each in followed.after(0)["lines"]] == [1]


@pytest.mark.parametrize("text", ['{"seed": NaN}', '{"seed": "\\ud800"}', "[" * 100_000, "[]", '{"recipe": 3}'])
def test_one_odd_manifest_does_not_hide_the_others(tmp_path: Path, text: str) -> None:
    (write_run(tmp_path / "odd", generations=1) / "manifest.json").write_text(text)
    write_run(tmp_path / "plain", generations=1)
    listed = Runs([tmp_path]).listed()["runs"]
    assert [run["name"] for run in listed] == ["odd", "plain"]
    json.dumps(listed, allow_nan=False).encode()


def test_what_cannot_be_read_once_is_read_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(write_run(tmp_path / "run", generations=2), "run")
    with monkeypatch.context() as patch:
        patch.setattr("esgd.run.files.os.open", lambda *_: (_ for _ in ()).throw(OSError(116, "Stale file handle")))
        followed.look()
        assert "Stale file handle" in followed.fault
    followed.look()
    assert (followed.k, followed.fault) == (2, "")


def test_a_longer_history_in_the_same_file_is_read_anew(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=2)
    followed = Followed(folder, "run")
    followed.look()
    text = "".join(json.dumps(line(k, best=7.0 / k)) + "\n" for k in (1, 2, 3))
    (folder / "history.jsonl").write_text(text)
    followed.look()
    assert [each["best"] for each in followed.after(0)["lines"]] == [7.0, 3.5, 7.0 / 3]
    assert followed.fault == ""


def test_a_damaged_line_that_is_mended_in_place_is_forgiven(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=1)
    with (folder / "history.jsonl").open("a") as file:
        file.write("no JSON\n")
    followed = Followed(folder, "run")
    followed.look()
    (folder / "history.jsonl").write_text(json.dumps(line(1)) + "\n" + json.dumps(line(2)) + "\n")
    os.utime(folder / "history.jsonl", (1, 1))
    followed.look()
    assert (followed.k, followed.fault) == (2, "")


def test_a_long_first_generation_is_not_called_silent(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=0)
    for file in folder.iterdir():
        os.utime(file, (time() - 600, time() - 600))
    followed = Followed(folder, "run")
    followed.look()
    assert followed.facts()["status"] == "in its first generation for 10 min"


def test_runs_of_two_folders_can_be_told_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name / "mine", generations=1)
    listed = Runs([tmp_path / "a", tmp_path / "b"]).listed()["runs"]
    assert [run["name"] for run in listed] == ["a/mine", "b/mine"]


def test_a_run_that_is_only_listed_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run", generations=300, planned=300)
    runs, read = Runs([tmp_path]), list[int]()
    new_lines = HistoryFollower.new_lines
    monkeypatch.setattr(HistoryFollower, "new_lines", lambda self: read.append(1) or new_lines(self))
    (listed,) = runs.listed()["runs"]
    assert (listed["k"], listed["status"], listed["fault"]) == (300, "finished", "")
    assert not read
    assert len(runs[listed["id"]].after(0)["lines"]) == 300
    assert runs.listed()["runs"][0]["version"] != listed["version"], "there is more to ask for"


def test_a_listed_run_that_goes_on_is_listed_with_its_last_whole_line(tmp_path: Path) -> None:
    folder, text = write_run(tmp_path / "run", generations=2), json.dumps(line(3)) + "\n"
    runs = Runs([tmp_path])
    for piece, k in (("", 2), (text[:40], 2), (text[40:], 3)):
        with (folder / "history.jsonl").open("a") as file:
            file.write(piece)
        assert runs.listed()["runs"][0]["k"] == k
    (folder / "history.jsonl").write_text("no JSON\n")
    assert runs.listed()["runs"][0]["status"] == "damaged"
    (folder / "history.jsonl").unlink()
    assert (runs.listed()["runs"][0]["k"], runs.listed()["runs"][0]["fault"]) == (0, "")
