"""`esgd export` of a run, or into a folder, that somebody else filled: nothing outside is written, read or deleted."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esgd._export import MARK, export
from tests.command import Done, esgd
from tests.unit.odd_files import IRREGULAR, NOT_JSON, a_folder, put
from tests.unit.watch.histories import line, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", generations=2)
    write(folder, [record(1), record(2)])
    return folder


@pytest.fixture
def out(run: Path) -> Path:
    """An export of the run, as it was when it had three generations."""
    write(run, [record(1), record(2), record(3)])
    folder = export(run)[0].parent
    write(run, [record(1), record(2)])
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim.txt"
    path.write_text("precious")
    return path


def record(k: int, /, **changes: Any) -> dict[str, Any]:
    return {**line(k), "elites": 1, **changes}


def write(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "history.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def refused(run: Path, *words: str) -> Done:
    done = esgd("export", run, cwd=run.parent)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    return done


@pytest.mark.parametrize(
    "name",
    ["../victim.txt", "{home}/victim.txt", "sub/../../victim.txt", "..", ".", "", "sub", "notes.txt", "x\0y", 5, None],
)
def test_a_list_of_files_deletes_nothing_that_no_export_has(run: Path, out: Path, victim: Path, name: Any) -> None:
    (out / "sub").mkdir()
    (out / "notes.txt").write_text("precious")
    mark = json.loads((out / MARK).read_text())
    mark["files"] += ["sub", "notes.txt", name.format(home=run.parent) if isinstance(name, str) else name]
    (out / MARK).write_text(json.dumps(mark))
    refused(run, "is no export of this run")
    assert victim.read_text() == (out / "notes.txt").read_text() == "precious"
    assert (out / "sub").is_dir()


@pytest.mark.parametrize("name", ["../victim.txt", "{home}/victim.txt"])
def test_a_list_of_files_that_leads_outside_deletes_nothing(run: Path, out: Path, victim: Path, name: str) -> None:
    mark = json.loads((out / MARK).read_text())
    (out / MARK).write_text(json.dumps({**mark, "files": [*mark["files"], name.format(home=run.parent)]}))
    refused(run, "is no export of this run")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", [MARK, "generations.csv", "generation-0001.csv", "generation-0003.csv"])
@pytest.mark.parametrize("form", ["{}", ".{}.new"])
def test_an_export_follows_no_link(run: Path, out: Path, victim: Path, name: str, form: str) -> None:
    link = out / form.format(name)
    if name == MARK and form == "{}":
        victim.write_bytes((out / MARK).read_bytes())
    content = victim.read_bytes()
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    done = esgd("export", run, cwd=run.parent)
    assert victim.read_bytes() == content
    if name == MARK and form == "{}":
        assert done.returncode == 3, "what is behind a link is no word of ours"
        return
    assert done.returncode == 0, done.stderr
    assert not any(path.is_symlink() for path in out.iterdir())


@pytest.mark.parametrize("name", ["generation-0001.csv", "generation-0003.csv"])
def test_a_folder_in_place_of_a_file_is_left_alone(run: Path, out: Path, name: str) -> None:
    (out / name).unlink()
    a_folder(out / name)
    (out / name / "notes.txt").write_text("precious")
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    refused(run, name)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before, "nothing was written"
    assert (out / name / "notes.txt").read_text() == "precious"


def test_a_link_in_place_of_the_folder_is_refused_unless_it_was_named(run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run-export").symlink_to(elsewhere)
    refused(run, "run-export", "is a link")
    assert not list(elsewhere.iterdir())
    assert export(run, tmp_path / "run-export")[0].exists()


def test_an_export_that_was_killed_is_brought_up_to_date(run: Path, out: Path) -> None:
    (out / ".generation-0002.csv.new").write_text("half")
    export(run)
    assert sorted(path.name for path in out.iterdir()) == [
        MARK,
        "generation-0001.csv",
        "generation-0002.csv",
        "generations.csv",
    ]


@pytest.mark.parametrize("what", IRREGULAR)
def test_a_history_that_is_no_plain_file_is_named(run: Path, what: Callable[[Path], None]) -> None:
    put(run / "history.jsonl", what)
    refused(run, "history.jsonl")


@pytest.mark.parametrize("what", IRREGULAR)
def test_a_list_of_files_that_is_no_plain_file_is_none(run: Path, out: Path, what: Callable[[Path], None]) -> None:
    put(out / MARK, what)
    refused(run, "is no export of this run")


@pytest.mark.parametrize("text", NOT_JSON.values(), ids=NOT_JSON)
def test_what_no_run_writes_is_named(run: Path, out: Path, text: str) -> None:
    raw = text.encode("utf-8", "surrogateescape")
    (out / MARK).write_bytes(raw)
    refused(run, "is no export of this run")
    (run / "history.jsonl").write_bytes(raw + b"\n" + json.dumps(record(2)).encode() + b"\n")
    refused(run, "line 1", "history.jsonl")


@pytest.mark.parametrize("k", [1.0, True, "1", None, [1], 1e400])
def test_a_generation_without_a_number_is_named(run: Path, k: Any) -> None:
    (run / "history.jsonl").write_text(json.dumps(record(1, k=k)).replace("Infinity", "1e400") + "\n")
    refused(run, "line 1", "history.jsonl")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@given(name=st.sampled_from(sorted(record(1))), value=values)
def test_whatever_stands_in_a_line_is_exported_or_named(
    tmp_path_factory: pytest.TempPathFactory, kind: str, name: str, value: Any
) -> None:
    run = tmp_path_factory.mktemp("odd") / "run"
    run.mkdir()
    write(run, [record(1, **{name: value}), record(2)])
    done = esgd("export", run, "--format", kind, cwd=run)
    assert done.returncode == 0 or (done.returncode == 3 and "history.jsonl" in done.stderr), done.stderr


FORMULAS = ["=cmd|' /C calc'!A0", "+1+cmd", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\N{FULLWIDTH EQUALS SIGN}1"]


def test_a_text_that_a_spreadsheet_would_calculate_is_escaped_and_numbers_are_not(run: Path) -> None:
    names = [f"n{number}" for number, _ in enumerate(FORMULAS)]
    settings = {**dict(zip(names, FORMULAS, strict=True)), "=HYPERLINK(1)": "plain", "minus": -0.5, "text": "-0.5"}
    policies = [{**each, "settings": settings} for each in line(1)["policies"]]
    write(run, [record(1, policies=policies, best=-1.5)])
    overview, generation = export(run)
    with generation.open(newline="", encoding="utf-8") as file:
        (row, *_) = [row for row in csv.DictReader(file) if row["trained"] == "True"]
    assert [row[f"settings_{name}"] for name in names] == [f"'{formula}" for formula in FORMULAS]
    assert row["settings_minus"] == "-0.5"
    assert row["settings_text"] == "-0.5", "a number that is written as a text is calculated to itself"
    with overview.open(newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["best"] == "-1.5"


def test_a_column_that_a_spreadsheet_would_calculate_is_escaped(run: Path) -> None:
    write(run, [{**record(1), "=HYPERLINK(1)": 1}])
    with export(run)[0].open(newline="", encoding="utf-8") as file:
        assert "'=HYPERLINK(1)" in next(csv.reader(file))
