"""Trackers that misbehave, and what a run makes of it."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_model

import esgd
from esgd.errors import TrackerError
from esgd.integrations import Logbook, TensorBoard, Tracked, choose_tracker, curves, settings
from tests.small import classify, mlp
from tests.unit.integrations.runs import RECIPE, fit
from tests.warm import python


class Notebook:
    """A tracker in memory; the `broken` ones of the times that it is told something, it fails."""

    where = "memory"

    def __init__(self, *, broken: tuple[int, ...] = (), done: int = 0) -> None:
        self.done, self.broken, self.seen, self.tries, self.ended = done, broken, list[int](), 0, list[Path | None]()
        self.told: Tracked | None = None

    def open(self, run: Tracked) -> Logbook:
        self.told = run
        return self

    def write(self, record: Any) -> None:
        self.tries += 1
        if self.tries in self.broken:
            raise OSError("No space left on device")
        self.seen.append(record["k"])

    def close(self, model: Path | None) -> None:
        self.ended.append(model)
        if model is not None:
            load_model(mlp(), model)


class Unwilling:
    """A tracker that cannot be opened."""

    def open(self, run: Tracked) -> Logbook:
        raise ConnectionError("Connection refused\nhost: secret, headers: many")


def long_run(*trackers: Any, generations: int, **changes: Any) -> esgd.Result:
    recipe = esgd.Recipe(population=2, offspring=2, generations=generations, sgd_epochs=1)
    given = {"seed": 0, "engine": "loop", "progress": False, **changes}
    return esgd.fit(classify(), recipe, trackers=trackers, **given)


def test_a_tracker_is_told_of_every_generation_and_of_the_model() -> None:
    tracker = Notebook()
    fit(None, tracker)
    assert tracker.seen == [1, 2, 3]
    (model,) = tracker.ended
    assert model is not None
    assert model.name == "model.safetensors"


def test_a_tracker_learns_what_the_run_is(tmp_path: Path) -> None:
    tracker, other = Notebook(), Notebook()
    fit(tmp_path / "mine", tracker)
    fit(tmp_path / "mine", other)
    assert tracker.told is not None
    assert tracker.told == other.told, "resumed, it is the same run"
    assert tracker.told.name == "mine"
    assert settings(tracker.told.manifest)["population"] == 3
    assert settings(tracker.told.manifest)["seed"] == 0


def test_a_failure_is_said_once_and_what_was_missed_is_sent_later(capfd: pytest.CaptureFixture[str]) -> None:
    tracker = Notebook(broken=(2, 3))
    result = long_run(tracker, generations=7, progress="plain")
    assert len(result.history) == 7
    assert tracker.seen == [1, 2, 3, 4, 5, 6, 7], "in order, each once"
    said = capfd.readouterr().err
    assert said.count("Notebook failed: No space left on device. The run continues") == 1
    assert said.count("Notebook is back, with every generation") == 1


def test_a_tracker_that_stays_broken_is_not_tried_every_time(capfd: pytest.CaptureFixture[str]) -> None:
    tracker = Notebook(broken=tuple(range(1, 10)))
    long_run(tracker, generations=9, progress="plain")
    assert tracker.tries == 5, "with 1, 2, 4 and 8 generations waiting, and at the end"
    said = capfd.readouterr().err
    assert said.count("failed") == 1
    assert "9 generations did not get there" in said
    assert tracker.ended == [None], "half a run is not called finished"


def test_what_a_logbook_has_already_is_not_written_again() -> None:
    tracker = Notebook(done=2)
    fit(None, tracker)
    assert tracker.seen == [3]


def test_one_broken_tracker_does_not_concern_the_others() -> None:
    broken, whole = Notebook(broken=(1, 2, 3)), Notebook()
    fit(None, broken, whole)
    assert whole.seen == [1, 2, 3]


def test_a_tracker_that_cannot_be_opened_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    first = Notebook()
    with pytest.raises(TrackerError, match="cannot be opened: Connection refused. Nothing was trained yet"):
        fit(tmp_path / "mine", first, Unwilling())
    assert first.ended == [None], "those that were open are closed"
    assert not (tmp_path / "mine" / "history.jsonl").exists()


@pytest.mark.parametrize("wrong", [[TensorBoard], [print], TensorBoard("tb"), 7, ["tensorboard:tb"]])
def test_what_is_no_tracker_is_refused_before_there_is_a_folder(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="not a tracker|not a list"):
        esgd.fit(classify(), RECIPE, seed=0, run=tmp_path / "mine", trackers=wrong)
    assert not (tmp_path / "mine").exists()


def test_curves_leave_out_what_diverged_and_take_diversity_where_it_is_known() -> None:
    line = {"k": 1, "best": None, "elite_mean": 0.5, "diversity": 0.25, "checked": 4, "backed_off": 1, "leader": None}
    assert curves(line) == {"fitness/elites": 0.5, "evolution/diversity": 0.25, "sgd/backed_off_share": 0.25}


def test_trackers_are_chosen_by_name() -> None:
    assert choose_tracker("tensorboard:logs") == TensorBoard("logs")
    assert choose_tracker("tensorboard") == TensorBoard()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tensorbord:tb", "Did you mean 'tensorboard'"),
        ("mflow", "Did you mean 'mlflow'"),
        ("json:loads", "not a tracker"),
        ("", "is not a tracker"),
    ],
)
def test_a_name_that_is_no_tracker_gets_a_suggestion(text: str, words: str) -> None:
    with pytest.raises(TrackerError, match=words):
        choose_tracker(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "made", "extra"),
    [
        ("tensorboard", "esgd.integrations.TensorBoard('tb')", "esgd[tensorboard]"),
        ("mlflow", "esgd.integrations.MLflow()", "esgd[mlflow]"),
        ("wandb", "esgd.integrations.WeightsAndBiases()", "esgd[wandb]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package: str, made: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import esgd.integrations; {made}"
    done = python("-c", program)
    assert "MissingExtraError" in done.stderr
    assert f"pip install '{extra}'" in done.stderr
