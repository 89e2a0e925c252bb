"""The history: its lines, who reads them, and what a generation costs that comes late in a long run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import esgd
from esgd.errors import RunError
from esgd.operators import Elitist
from esgd.operators.survival import trajectories
from esgd.report import write_run
from esgd.run import RunFolder, history, read_history, verify
from esgd.run.folder import same_lines
from esgd.run.history import find_lines, last_value, read_lines
from esgd.watch import Followed
from tests.unit.watch.histories import line

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
TASK = esgd.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(X, Y), fitness=(X, Y), batch_size=16)
RECIPE = esgd.Recipe(population=2, offspring=2, elites=1, generations=4, sgd_epochs=1)
COPY = Path("checkpoint", "history.jsonl")


def fit(folder: Path, recipe: esgd.Recipe = RECIPE) -> esgd.Result:
    return esgd.fit(TASK, recipe, seed=0, run=folder, engine="loop", progress=False, report=False)


def alter(path: Path, number: int) -> None:
    """Another best fitness in one line."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), "best": 0.001})
    path.write_text("\n".join(lines) + "\n")


def write(path: Path, *lines: Any, end: str = "") -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines) + end)
    return path


def test_a_late_generation_writes_no_more_than_an_early_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spelt = list[int]()
    spell = history.spell
    monkeypatch.setattr(history, "spell", lambda line: spelt.append(line["k"]) or spell(line))
    with RunFolder(tmp_path).locked() as folder:
        recipe = esgd.Recipe(population=2, offspring=2, elites=1, generations=30, sgd_epochs=1)
        for generation in esgd.evolve(TASK, recipe, seed=0, engine="loop"):
            spelt.clear()
            folder.save(generation.state, run="this")
            assert spelt == [generation.k, generation.k], "the line itself, once for each file"
    states = [(tmp_path / "checkpoint" / k / "state.json").stat().st_size for k in ("000029", "000030")]
    assert max(states) < 4_000, "no history in it"


def test_a_late_generation_shares_the_lines_and_policies_of_those_before() -> None:
    *_, before, last = (generation.state for generation in esgd.evolve(TASK, RECIPE, seed=0, engine="loop"))
    assert [line["k"] for line in before.history] == [1, 2, 3]
    assert [line["k"] for line in last.history] == [1, 2, 3, 4]
    assert all(one is other for one, other in zip(before.past, last.past, strict=False))
    assert len(last.past) == 4 * RECIPE.population


def test_a_state_can_be_continued_twice() -> None:
    states = [generation.state for generation in esgd.evolve(TASK, RECIPE, seed=0, engine="loop")]
    again = [generation.state for generation in esgd.evolve(TASK, RECIPE, seed=0, engine="loop", resume=states[1])]
    assert [line["fitness"] for line in again[-1].history] == [line["fitness"] for line in states[-1].history]
    assert [len(state.history) for state in states] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 2, 3], ids=["the first line", "the last but one", "the last"])
@pytest.mark.parametrize("damaged", [Path("history.jsonl"), COPY], ids=["the history", "its copy"])
def test_of_the_history_and_its_copy_the_one_that_is_whole_mends_the_other(
    tmp_path: Path, damaged: Path, number: int
) -> None:
    whole = fit(tmp_path)
    alter(tmp_path / damaged, number)
    assert any(str(damaged) in fault for fault in verify(tmp_path).faults)
    assert same_lines(fit(tmp_path).history, whole.history)
    assert verify(tmp_path).faults == ()
    assert same_lines(read_history(tmp_path / damaged), whole.history)


def test_the_last_line_that_is_damaged_in_both_is_computed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = fit(tmp_path)
    for path in (tmp_path / "history.jsonl", tmp_path / COPY):
        alter(path, 3)
    again = esgd.fit(TASK, RECIPE, seed=0, run=tmp_path, engine="loop", report=False)
    assert "Continuing from generation 3" in capsys.readouterr().err
    assert [each["fitness"] for each in again.history] == [each["fitness"] for each in whole.history]
    assert verify(tmp_path).faults == ()


def test_a_finished_run_without_a_generation_to_continue_from_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    fit(tmp_path)
    for path in (tmp_path / "history.jsonl", tmp_path / COPY):
        alter(path, 0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="finished run and no checkpoint that is whole"):
        esgd.fit(TASK, RECIPE, seed=0, run=tmp_path, engine="loop", report=False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_that_begins_again_keeps_its_new_checkpoints_and_not_the_damaged_ones(tmp_path: Path) -> None:
    fit(tmp_path)
    for path in (tmp_path / "checkpoint").glob("*/tensors.safetensors"):
        path.write_bytes(b"")
    with RunFolder(tmp_path).locked() as folder:
        generation = next(esgd.evolve(TASK, RECIPE, seed=0, engine="loop"))
        folder.save(generation.state, run="this")
    assert sorted(path.name for path in (tmp_path / "checkpoint").glob("0*")) == ["000001"]


def test_a_line_that_was_written_ahead_of_its_checkpoint_is_written_again(tmp_path: Path) -> None:
    whole = fit(tmp_path)
    with (tmp_path / COPY).open("a") as file:
        file.write(json.dumps(line(5)) + '\n{"k": 6')
    assert fit(tmp_path).history == whole.history
    assert find_lines(tmp_path / COPY).clean
    assert verify(tmp_path).faults == ()


def test_the_last_value_is_found_without_what_stands_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "TAIL", 16)
    path = write(tmp_path / "history.jsonl", *map(line, (1, 2, 3)))
    assert last_value(path) == (line(3), False)
    write(path, *map(line, (1, 2, 3)), end='{"k": 4')
    assert last_value(path) == (line(3), True)
    write(path, line(1))
    assert last_value(path) == (line(1), False)
    write(path, end='{"k": 1')
    assert last_value(path) == (None, True)


def strict(path: Path) -> int:
    return len(read_lines(path))


def prefix(path: Path) -> int:
    return len(read_history(path))


def followed(path: Path) -> int:
    run = Followed(path.parent, "run")
    run.look()
    return run.k


@pytest.mark.parametrize("read", [strict, prefix, followed])
def test_all_readers_agree_on_what_is_whole(tmp_path: Path, read: Callable[[Path], int]) -> None:
    path = tmp_path / "history.jsonl"
    assert read(write(path, line(1), line(2))) == 2
    assert read(write(path, line(1), line(2), end='{"k": 3')) == 2
    assert read(write(path, line(1), line(2), end=json.dumps(line(3)))) == 2, "its end is not there yet"
    path.write_text(json.dumps(line(1)) + "\n\n" + json.dumps(line(2)) + "\n")
    assert read(path) == 2, "an empty line is none"


@pytest.mark.parametrize("read", [prefix, followed])
def test_what_stands_before_a_damaged_line_is_read(tmp_path: Path, read: Callable[[Path], int]) -> None:
    path = write(tmp_path / "history.jsonl", line(1), line(3), line(2))
    assert read(path) == 1
    with pytest.raises(RunError, match="line 2 of .* is no record of its generation: it is about generation 3"):
        strict(path)


def test_the_end_of_a_trajectory_that_became_an_individual_is_reported(tmp_path: Path) -> None:
    recipe = esgd.Recipe(
        population=6,
        elites=2,
        offspring=4,
        generations=3,
        sgd_epochs=1,
        survival=Elitist(rest=trajectories),
        species=lambda draw: esgd.Policy(optimizer="sgd", hyper={"lr": 50.0 if draw.j % 2 else 0.1}),
    )
    lines = fit(tmp_path, recipe).history
    assert any("@" in birth["id"] for each in lines for birth in each["births"])
    assert write_run(tmp_path).is_file()
