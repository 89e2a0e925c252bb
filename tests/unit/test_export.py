"""`esgd export`: what others' tools read, and what is refused."""

import csv
import json
import shutil
from pathlib import Path

import pandas
import pytest
from pyarrow import parquet

import esgd
from esgd._export import export
from esgd.errors import RecipeError, RunError
from tests.small import classify
from tests.warm import python

RECIPE = esgd.Recipe(population=4, offspring=6, generations=3, sgd_epochs=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("export") / "run"
    esgd.fit(classify(), RECIPE, seed=0, run=run, engine="loop", progress=False, report=False)
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_there_is_a_file_for_every_generation_and_one_of_all(run: Path, kind: str) -> None:
    before = sorted(run.rglob("*"))
    files = export(run, format=kind)
    names = [f"generations.{kind}", *(f"generation-000{k}.{kind}" for k in (1, 2, 3))]
    assert [file.name for file in files] == names
    assert {file.parent for file in files} == {run.parent / "run-export"}
    assert sorted(run.rglob("*")) == before, "nothing is written into the run"


def test_csv_and_parquet_hold_what_a_frame_holds(run: Path, tmp_path: Path) -> None:
    result = esgd.fit(classify(), RECIPE, seed=0, run=run, engine="loop", progress=False, report=False)
    frame = result.frame("individuals")
    text = pandas.concat([pandas.read_csv(path, dtype={"id": str}) for path in export(run, tmp_path / "c")[1:]])
    binary = pandas.concat(
        [pandas.read_parquet(path) for path in export(run, tmp_path / "p", format="parquet")[1:]], ignore_index=True
    )
    for there in (text, binary):
        assert there["id"].tolist() == frame["id"].tolist()
        assert there["fitness"].tolist() == frame["fitness"].tolist()
        assert there["lr"].dropna().tolist() == frame["lr"].dropna().tolist()


def test_all_parquet_files_have_the_same_columns_of_the_same_types(run: Path) -> None:
    schemas = [parquet.read_schema(path) for path in export(run, format="parquet")[1:]]
    assert all(schema.equals(schemas[0]) for schema in schemas)


def test_an_export_is_brought_up_to_date(run: Path) -> None:
    export(run)
    export(run, format="parquet")
    names = {path.name for path in (run.parent / "run-export").iterdir()}
    assert not any(name.endswith(".csv") for name in names)
    assert len(names) == 5


def test_a_last_line_that_is_half_written_is_not_there_yet(run: Path) -> None:
    history = run / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-200])
    assert len(export(run)) == 3


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: "{]\n" + text, "line 1 of .* is not JSON"),
        (lambda text: text.split("\n", 1)[1], "not the record of generation 1"),
        (lambda text: "[1]\n" + text, "not the record of generation 1"),
        (lambda text: "", "no finished generation yet"),
        (lambda text: '{"k": 1}\n', "cannot be laid out as tables"),
        (lambda text: text.replace('"births"', '"briths"'), "cannot be laid out as tables"),
    ],
)
def test_a_damaged_history_is_named(run: Path, damage: object, words: str) -> None:
    history = run / "history.jsonl"
    history.write_text(damage(history.read_text()))  # type: ignore[operator]
    with pytest.raises(RunError, match=words):
        export(run)
    assert not (run.parent / "run-export").exists()


def test_a_folder_of_somebody_else_is_left_alone(run: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "generations.csv").write_text("precious")
    with pytest.raises(RunError, match="no export of this run"):
        export(run, theirs)
    with pytest.raises(RunError, match="no export of this run"):
        export(run, run)
    assert (theirs / "generations.csv").read_text() == "precious"


def test_an_export_with_something_else_in_it_is_left_alone(run: Path) -> None:
    export(run)
    (run.parent / "run-export" / "notes.txt").write_text("precious")
    with pytest.raises(RunError, match="notes.txt"):
        export(run)


def test_a_folder_that_is_no_run_and_a_format_that_is_none_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not the folder of a run"):
        export(tmp_path / "nowhere")
    with pytest.raises(RecipeError, match="Did you mean 'parquet'"):
        export(run, format="parket")
    with pytest.raises(RunError, match="is a file"):
        export(run, run / "history.jsonl")


def test_settings_that_are_a_number_here_and_a_word_there_become_words(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    lines[0]["policies"][0]["settings"] = {"mode": 3}
    lines[0]["policies"][1]["settings"] = {"mode": "slow"}
    (run / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    table = parquet.read_table(export(run, format="parquet")[1])
    assert {value for value in table["settings_mode"].to_pylist() if value is not None} == {"3", "slow"}
    with export(run)[1].open() as file:
        assert {row["settings_mode"] for row in csv.DictReader(file)} >= {"3", "slow"}


@pytest.mark.slow
def test_without_pyarrow_the_error_names_the_extra_and_nothing_is_written(run: Path) -> None:
    program = (
        f"import sys; sys.modules['pyarrow'] = None; sys.argv = ['esgd', 'export', {str(run)!r}, '--format', 'parquet']"
        "; from esgd.cli import main; main()"
    )
    done = python("-c", program)
    assert done.returncode == 2
    assert "pip install 'esgd[export]'" in done.stderr
    assert not (run.parent / "run-export").exists()
