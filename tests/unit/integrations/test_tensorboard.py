"""TensorBoard: read back with its own reader what a run has written."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import esgd
from esgd.errors import TrackerError
from esgd.integrations import TensorBoard, curves, tracked
from tests.small import classify
from tests.unit.integrations.runs import RECIPE, fit, interrupted


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def steps(folder: Path, curve: str = "fitness/best") -> list[int]:
    return [event.step for event in read(folder).Scalars(curve)]


def test_the_curves_are_those_of_the_history(tmp_path: Path) -> None:
    result = fit(tmp_path / "mine", TensorBoard(tmp_path / "tb"))
    events = read(tmp_path / "tb" / "mine")
    for line in result.history:
        for name, value in curves(line).items():
            if name != "seconds/total":
                logged = {event.step: event.value for event in events.Scalars(name)}
                assert logged[line["k"]] == pytest.approx(value), name
    names = {"fitness/best", "fitness/elites", "fitness/mean", "evolution/offspring_share", "leader/lr"}
    assert names <= set(events.Tags()["scalars"])


def test_the_final_model_and_the_recipe_are_there(tmp_path: Path) -> None:
    fit(tmp_path / "mine", TensorBoard(tmp_path / "tb"))
    place = tmp_path / "tb" / "mine"
    assert (place / "model.safetensors").read_bytes() == (tmp_path / "mine" / "model.safetensors").read_bytes()
    recipe = read(place).Tensors("recipe/text_summary" if "recipe/text_summary" in read(place).Tags() else "recipe")
    assert b'"population": 3' in recipe[0].tensor_proto.string_val[0]


def test_a_resumed_run_goes_on_without_doubled_steps(tmp_path: Path) -> None:
    tracker = TensorBoard(tmp_path / "tb")
    interrupted(tmp_path / "mine", tracker, after=1)
    assert steps(tmp_path / "tb" / "mine") == [1]
    fit(tmp_path / "mine", tracker)
    fit(tmp_path / "mine", tracker)
    assert steps(tmp_path / "tb" / "mine") == [1, 2, 3]


def test_a_tracker_that_comes_later_is_told_the_past(tmp_path: Path) -> None:
    fit(tmp_path / "mine")
    fit(tmp_path / "mine", TensorBoard(tmp_path / "tb"))
    assert steps(tmp_path / "tb" / "mine") == [1, 2, 3]


def test_another_run_of_the_same_name_has_a_folder_of_its_own(tmp_path: Path) -> None:
    tracker = TensorBoard(tmp_path / "tb")
    fit(tmp_path / "a" / "mine", tracker)
    fit(tmp_path / "b" / "mine", tracker)
    assert steps(tmp_path / "tb" / "mine") == steps(tmp_path / "tb" / "mine-2") == [1, 2, 3]


def test_a_loop_of_ones_own_is_tracked_too(tmp_path: Path) -> None:
    generations = esgd.evolve(classify(), RECIPE, seed=0, engine="loop")
    seen = [generation.k for generation in tracked(generations, TensorBoard(tmp_path), name="loop")]
    assert seen == steps(tmp_path / "loop") == [1, 2, 3]
    assert (tmp_path / "loop" / "model.safetensors").is_file()


def test_a_loop_that_goes_on_from_a_state_brings_its_past_along(tmp_path: Path) -> None:
    first = next(esgd.evolve(classify(), RECIPE, seed=0, engine="loop"))
    rest = esgd.evolve(classify(), RECIPE, seed=0, engine="loop", resume=first.state)
    list(tracked(rest, TensorBoard(tmp_path)))
    assert steps(tmp_path / "esgd") == [1, 2, 3]


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "tb").write_text("a file")
    with pytest.raises(TrackerError, match="TensorBoard cannot write into"):
        fit(tmp_path / "mine", TensorBoard(tmp_path / "tb"))
    assert not (tmp_path / "mine" / "history.jsonl").exists()
