"""`esgd report` of a folder that somebody else filled: it touches plain files only, and names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from esgd.errors import RunError
from esgd.report import write_comparison, write_run, write_runs
from tests.command import esgd
from tests.unit.odd_files import IRREGULAR, NOT_JSON, a_folder, put
from tests.unit.watch.histories import line
from tests.unit.watch.histories import write_run as written

FORMS = ["{}", ".{}.new"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return written(tmp_path / "mine", generations=2)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(b"precious")
    return path


def refused(run: Path, name: str) -> str:
    """What `esgd report` says about a file that it cannot use."""
    done = esgd("report", run, cwd=run.parent)
    assert done.returncode == 3, done.stderr
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def linked(folder: Path, form: str, names: Sequence[str], victim: Path) -> None:
    """Where each of these files is to be written, there is a link."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / form.format(name)).symlink_to(victim)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_the_report_of_a_run_is_written_through_no_link(run: Path, victim: Path, form: str) -> None:
    names = ["report.html", "run.png"]
    linked(run, form, names, victim)
    done = esgd("report", run, cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert victim.read_bytes() == b"precious"
    assert [name for name in names if (run / name).is_symlink() or not (run / name).is_file()] == []
    assert not list(run.glob(".*.new"))


@pytest.mark.parametrize("form", FORMS)
def test_the_report_of_runs_is_written_through_no_link(run: Path, victim: Path, form: str) -> None:
    out, names = run.with_name("out"), ["report.html", "table-1.md"]
    linked(out, form, names, victim)
    write_runs([run, written(run.with_name("other"), generations=2)], out)
    assert victim.read_bytes() == b"precious"
    assert all((out / name).read_text(encoding="utf-8") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_comparison_is_written_through_no_link(
    comparison: dict[str, Any], histories: Any, tmp_path: Path, victim: Path, form: str
) -> None:
    out, names = tmp_path / "out", ["comparison.json", "table-1.md", "figure-1.png", "figure-2.png", "report.html"]
    linked(out, form, names, victim)
    write_comparison(comparison, histories, out)
    assert victim.read_bytes() == b"precious"
    assert [name for name in names if (out / name).is_symlink() or not (out / name).is_file()] == []


@pytest.mark.parametrize("name", ["report.html", "run.png"])
def test_a_folder_in_place_of_a_file_to_write_is_named_and_kept(run: Path, name: str) -> None:
    (run / name).mkdir()
    (run / name / "notes").write_text("precious")
    assert "Writing the report" in refused(run, name)
    assert (run / name / "notes").read_text() == "precious"


def test_a_comparison_says_where_it_cannot_be_written(comparison: dict[str, Any], histories: Any, victim: Path) -> None:
    with pytest.raises(RunError, match="Writing the report in '.*victim' failed"):
        write_comparison(comparison, histories, victim)


@pytest.mark.parametrize("what", IRREGULAR)
@pytest.mark.parametrize("name", ["history.jsonl", "manifest.json"])
def test_what_is_no_plain_file_is_named(run: Path, name: str, what: Callable[[Path], None]) -> None:
    put(run / name, what)
    refused(run, name)
    assert not (run / "report.html").exists()


def test_a_file_in_place_of_a_run_is_named(run: Path) -> None:
    assert esgd("report", run / "manifest.json", cwd=run).returncode == 3


def test_a_file_that_may_not_be_read_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("esgd.run.files.os.open", forbidden)
    assert "Permission denied" in refused(run, "manifest.json")


@pytest.mark.parametrize("name", ["history.jsonl", "manifest.json"])
@pytest.mark.parametrize("text", NOT_JSON.values(), ids=NOT_JSON)
def test_what_no_run_writes_is_named(run: Path, name: str, text: str) -> None:
    more = json.dumps(line(2)) if name == "history.jsonl" else ""
    (run / name).write_bytes(f"{text}\n{more}\n".encode("utf-8", "surrogateescape"))
    refused(run, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"k": 7},
        {"k": 1e400},
        {"k": True},
        {"best": 10**400},
        {"leader": {"optimizer": "sgd", "lr": 10**400}},
        {"best": 1e308, "fitness": [1e308, -1e308], "elite_mean": 1e308},
        {"offspring_among_elites": 1e308},
        {"test": {"loss": 1e308, "error": 1e308}},
        {"leader": {"optimizer": "sgd", "lr": {"deep": [{}]}}},
        {"ledger": dict.fromkeys(line(1)["ledger"], 10**299)},
        {"seconds": {"sgd": 1e308, "fitness": 1e308}},
        {"births": [{"id": "9.9.9", "parents": ["9.1.0"]}, {"id": "0.0.1", "parents": []}]},
    ],
    ids=str,
)
def test_an_odd_line_has_a_page_or_is_named(run: Path, change: dict[str, Any]) -> None:
    text = json.dumps({**line(2), **change}).replace("Infinity", "1e400")
    (run / "history.jsonl").write_text(f"{json.dumps(line(1))}\n{text}\n")
    done = esgd("report", run, cwd=run)
    assert done.returncode in (0, 3), done.stderr
    assert done.returncode == 0 or "history.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "manifest",
    [
        {"seed": []},
        {"seed": {"a": 1}},
        {"recipe": {"elites": float("nan"), "population": 3}},
        {"recipe": {"elites": 0.5, "population": 10**400}},
        {"seed": 10**400},
        {"recipe": {"species": {"kind": "mixture", "species": 5}}},
        {"recipe": {"species": {"kind": "policy", "optimizer": "sgd", "hyper": 5}}},
        {"recipe": {"species": {"kind": ["sgd"]}}},
        {"versions": {"esgd": {"kind": "mixture", "species": None}}},
    ],
    ids=str,
)
def test_an_odd_manifest_is_named(run: Path, manifest: dict[str, Any]) -> None:
    (run / "manifest.json").write_text(json.dumps(manifest))
    for words in (["report", run], ["report", run, written(run.with_name("other"), generations=1), "--out", "both"]):
        done = esgd(*words, cwd=run.parent)
        assert done.returncode in (0, 3), done.stderr
        assert done.returncode == 0 or "manifest.json" in done.stderr


@pytest.mark.slow
def test_a_report_is_the_same_whatever_stood_in_its_place(run: Path, victim: Path) -> None:
    before = write_run(run).read_bytes()
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(victim)
    a_folder(run / ".report.html.new")
    assert write_run(run).read_bytes() == before
