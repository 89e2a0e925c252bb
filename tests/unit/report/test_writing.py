"""Reports as files: what is written, what is read, and what is said when it cannot be."""

from __future__ import annotations

import json
import sys

import pytest

from esgd.errors import MissingExtraError, RunError
from esgd.report import (
    as_markdown,
    comparison_page,
    differences_table,
    first_leaders,
    ledger_table,
    table_1,
    write_comparison,
    write_run,
)


@pytest.fixture
def run(histories, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    lines = [json.dumps(line) for line in histories["esgd"][0]]
    (folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"seed": 0, "versions": {"torch": "2.13.0"}}))
    return folder


def test_a_comparison_becomes_five_files(comparison, histories, tmp_path):
    path = write_comparison(comparison, histories, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "report.html"
    assert {file.name for file in path.parent.iterdir()} == {
        "report.html",
        "figure-1.png",
        "figure-2.png",
        "table-1.md",
        "comparison.json",
    }
    assert path.read_text(encoding="utf-8") == comparison_page(comparison, histories)
    tables = [make(comparison) for make in (table_1, differences_table, ledger_table)]
    tables.append(first_leaders(histories))
    assert [table.title for table in tables][-1] == "The leader’s optimizer: ESGD, seed 0"
    assert (path.parent / "table-1.md").read_text(encoding="utf-8") == "\n".join(map(as_markdown, tables))
    assert json.loads((path.parent / "comparison.json").read_text()) == comparison
    assert (path.parent / "figure-1.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_not_finite_is_null_in_the_json(make_comparison, tmp_path):
    write_comparison(make_comparison(single=[(float("inf"), float("nan"))], esgd=[(0.5, 0.5)]), {}, tmp_path)
    (entry,) = json.loads((tmp_path / "comparison.json").read_text())["arms"]["single"]
    assert entry["fitness"] is None
    assert entry["test"] == {"loss": None}


def test_the_data_of_a_comparison_are_kept_where_nothing_can_be_drawn(comparison, histories, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError):
        write_comparison(comparison, histories, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"comparison.json", "table-1.md"}


def test_a_run_becomes_a_page_and_a_picture(run):
    path = write_run(run)
    text = path.read_text(encoding="utf-8")
    assert path == run / "report.html"
    assert "<h1>mine</h1>" in text
    assert "2.13.0" in text
    assert (run / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_half_written_last_line_is_not_there_yet(run):
    whole = write_run(run).read_text(encoding="utf-8")
    with (run / "history.jsonl").open("a") as file:
        file.write('{"k": 4, "best": 0.3')
    assert write_run(run).read_text(encoding="utf-8") == whole


def test_a_damaged_line_in_the_middle_is_named(run):
    first, _, rest = (run / "history.jsonl").read_text().partition("\n")
    (run / "history.jsonl").write_text(f"{first}\n{{oops\n{rest}")
    with pytest.raises(RunError, match="line 2 of .* is not JSON"):
        write_run(run)


def test_a_run_without_a_manifest_has_a_page_too(run):
    (run / "manifest.json").unlink()
    assert "Made with" not in write_run(run).read_text(encoding="utf-8")


def test_a_folder_that_is_no_run_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(RunError, match="has no history.jsonl.*Give the folder of a run"):
        write_run(tmp_path)


def test_a_run_without_a_finished_generation_asks_for_patience(tmp_path):
    (tmp_path / "history.jsonl").write_text('{"k": 1')
    with pytest.raises(RunError, match="no whole line yet.*Try again"):
        write_run(tmp_path)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ([1], "it is a list, not an object"),
        (5, "it is a int, not an object"),
        ({"k": 1}, "it has no 'best'"),
        ({"k": "one"}, "'k' is 'one'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("where", ["first", "last"])
def test_a_line_that_is_no_record_is_named_with_what_to_do(run, line, says, where):
    whole = (run / "history.jsonl").read_text()
    bad = json.dumps(line) + "\n"
    (run / "history.jsonl").write_text(bad + whole if where == "first" else whole + bad)
    number = 1 if where == "first" else 1 + whole.count("\n")
    with pytest.raises(
        RunError, match=f"line {number} of .*history.jsonl' is no record of its generation: {says}.*Restore"
    ):
        write_run(run)


@pytest.mark.parametrize(
    "change",
    [
        {"best": "low"},
        {"fitness": None},
        {"fitness": ["low"]},
        {"leader": {}},
        {"leader": [1]},
        {"leader": {"optimizer": "sgd", "schedule": 5}},
        {"ledger": None},
        {"ledger": {"sgd_forward": None}},
        {"seconds": {"sgd": "long"}},
        {"notes": [5]},
        {"test": [1]},
        {"checked": None},
        {"guarantee": None},
    ],
    ids=str,
)
def test_a_field_that_cannot_be_reported_is_named(run, change):
    line = json.loads((run / "history.jsonl").read_text().partition("\n")[0])
    (run / "history.jsonl").write_text(json.dumps({**line, **change}) + "\n")
    with pytest.raises(RunError, match=f"line 1 of .* is no record of its generation: '{next(iter(change))}' is "):
        write_run(run)


@pytest.mark.parametrize("text", ["[1]", "5", "{oops", '{"versions": 5}', '{"recipe": [1]}'])
def test_a_damaged_manifest_is_named_with_what_to_do(run, text):
    (run / "manifest.json").write_text(text)
    with pytest.raises(RunError, match="manifest.json is damaged: .*Restore the file from a copy, or remove it"):
        write_run(run)


@pytest.mark.parametrize("nothing", ["null", "NaN", "Infinity"])
def test_a_run_that_measured_nothing_finite_has_a_page_too(run, make_line, nothing):
    line = make_line(1, [None, None], elite_mean=None, test={"loss": None, "error": 0.5}, offspring_among_elites=None)
    (run / "history.jsonl").write_text(
        json.dumps(line).replace("null", nothing).replace(f'"leader": {nothing}', '"leader": null') + "\n"
    )
    text = write_run(run).read_text(encoding="utf-8")
    assert "No individual had a finite fitness in 1 generation." in text
    assert "diverged" in text
