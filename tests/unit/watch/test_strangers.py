"""A folder of runs that others write into: one bad run is one bad row, and the others do not wait for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esgd.run import following
from esgd.watch import Followed, Runs
from tests.unit.odd_files import IRREGULAR, NOT_JSON, a_file_without_end, a_link_to_a_file_elsewhere, put
from tests.unit.watch.histories import line, write_run


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    """What the page is told, as it travels."""
    answer = json.dumps(Runs([folder]).listed(), allow_nan=False)
    answer.encode()
    return {run["name"]: run for run in json.loads(answer)["runs"]}


@pytest.mark.parametrize("what", IRREGULAR)
@pytest.mark.parametrize("name", ["history.jsonl", "manifest.json"])
def test_what_is_no_plain_file_is_one_bad_row(tmp_path: Path, name: str, what: Callable[[Path], None]) -> None:
    runs = tmp_path / "runs"
    put(write_run(runs / "bad", generations=2) / name, what)
    (runs / "bad" / "recipe.toml").touch()
    if name == "history.jsonl" and not (runs / "bad" / name).is_file():
        (runs / "bad" / "manifest.json").touch()
    write_run(runs / "good", generations=2)
    found = listed(runs)
    assert (found["good"]["k"], found["good"]["fault"]) == (2, "")
    if name == "history.jsonl":
        assert "bad/history.jsonl" in found["bad"]["fault"]
        assert (found["bad"]["k"], found["bad"]["status"]) in ((0, "cannot be read"), (0, "damaged"))
        assert str(tmp_path) not in found["bad"]["fault"], "the page says nothing of where runs lie"
    else:
        assert found["bad"]["generations"] is None


def test_a_file_elsewhere_is_not_served_through_a_link(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs" / "mine", generations=2)
    put(folder / "history.jsonl", a_link_to_a_file_elsewhere)
    run = Followed(folder, "mine")
    run.look()
    assert run.after(0)["lines"] == []
    assert "mine/history.jsonl is a link, a folder or a device" in run.fault


def test_a_line_without_end_is_given_up_and_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", generations=2)
    with (folder / "history.jsonl").open("ab") as file:
        file.truncate(10 << 30)
    run = Followed(folder, "run")
    for _ in range(2):
        run.look()
    assert run.k == 2
    assert "Line 3 of run/history.jsonl" in run.fault
    monkeypatch.setattr(following, "PIECE", None)  # whoever reads again fails
    run.look()
    assert run.k == 2


@pytest.mark.parametrize(("limit", "value"), [("PIECE", 2 * len(json.dumps(line(1)))), ("HASTE", 0.0)])
def test_a_long_history_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(following, limit, value)
    run = Followed(write_run(tmp_path / "run", generations=5), "run")
    seen = []
    while run.k < 5:
        run.look()
        seen.append(run.k)
    assert seen == sorted(set(seen)), "every look brings something, and none brings all"
    assert len(seen) > 2
    assert run.fault == ""


def test_a_history_beyond_all_measure_is_shown_up_to_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(line(1))
    monkeypatch.setattr(following, "PIECE", 2 * len(text))
    monkeypatch.setattr(following, "SHOWN", 3 * len(text))
    run = Followed(write_run(tmp_path / "run", generations=9), "run")
    for _ in range(9):
        run.look()
    assert 3 <= run.k < 9
    assert "run/history.jsonl has more than" in run.fault


@pytest.mark.parametrize("text", NOT_JSON.values(), ids=NOT_JSON)
def test_what_no_run_writes_is_one_bad_row(tmp_path: Path, text: str) -> None:
    raw = text.encode("utf-8", "surrogateescape")
    for name in ("history.jsonl", "manifest.json"):
        folder = write_run(tmp_path / name, generations=2)
        (folder / name).write_bytes(raw + b"\n")
    write_run(tmp_path / "good", generations=2)
    found = listed(tmp_path)
    assert "Line 1 of history.jsonl/history.jsonl" in found["history.jsonl"]["fault"]
    assert found["history.jsonl"]["status"] == "damaged"
    assert found["manifest.json"]["k"] == found["good"]["k"] == 2
    assert found["good"]["fault"] == ""


def test_a_manifest_without_end_keeps_nobody_waiting(tmp_path: Path) -> None:
    a_file_without_end(write_run(tmp_path / "bad", generations=1) / "manifest.json")
    assert listed(tmp_path)["bad"]["k"] == 1


def test_a_manifest_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=1, planned=5)
    run = Followed(folder, "run")
    assert run.facts()["generations"] == 5
    (folder / "manifest.json").write_text(json.dumps({"seed": 0, "recipe": {"generations": 123}}))
    assert run.facts()["generations"] == 123


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
odd_manifests = st.dictionaries(st.sampled_from(["seed", "recipe"]), values) | st.fixed_dictionaries(
    {"recipe": st.dictionaries(st.sampled_from(["generations", "population", "fine_tuning"]), values)}
)


@pytest.mark.slow
@given(name=st.sampled_from(sorted(line(1))), value=values, manifest=odd_manifests)
def test_whatever_a_run_says_can_be_told_to_the_page(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any, manifest: Any
) -> None:
    folder = write_run(tmp_path_factory.mktemp("odd") / "run", generations=1)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with (folder / "history.jsonl").open("a") as file:
        file.write(json.dumps({**line(2), name: value}) + "\n")
    run = Followed(folder, "run")
    run.look()
    json.dumps([run.facts(), run.after(0)], allow_nan=False, ensure_ascii=False).encode()
    assert run.fault or run.k == 2


@pytest.mark.slow
def test_the_family_tree_of_a_hundred_thousand_generations_is_drawn_at_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", generations=0)
    run = Followed(folder, "run")
    run.lines = [{"k": k} for k in range(1, 100_001)]
    run.records = [
        {"k": k, "fitness": [0.5], "births": [{"id": f"{k}.1.0", "parents": [f"{k - 1}.1.0"]}]}
        for k in range(1, 100_001)
    ]
    tree = run.after(99_999)["tree"]
    assert len(tree["individuals"]) == 100_001
    assert {each["lane"] for each in tree["individuals"]} == {0}
