"""Rules that stop a run: when they fire, what a resume does, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import esgd
from esgd import Patience, Target
from esgd._algorithm.last_state import last_generation
from esgd.errors import FitnessError, RecipeError
from esgd.generation import Generation
from esgd.run import RunFolder, verify
from tests.small import mlp, random_data

RECIPE = esgd.Recipe(population=3, offspring=3, generations=4, sgd_epochs=1)


def fit(run: Path | None = None, *, loss: Any = F.cross_entropy, **rest: Any) -> esgd.Result:
    task = esgd.Supervised(
        mlp, loss, train=random_data(48), fitness=random_data(70, seed=1), test=random_data(40, seed=2), batch_size=16
    )
    return esgd.fit(task, RECIPE, seed=0, run=run, engine="loop:threads=1", progress=False, report=False, **rest)


def after(*values: float | None, of: str = "best") -> Any:
    """A generation whose history has these values."""
    table, _, metric = of.partition(".")
    lines = [{"k": k, table: {metric: value} if metric else value} for k, value in enumerate(values, start=1)]

    class State:
        history = lines

    class Stub:
        k, state = len(lines), State

    return Stub()


def same(one: esgd.Result, other: esgd.Result) -> bool:
    lines = [[{**line, "seconds": None} for line in result.history] for result in (one, other)]
    return lines[0] == lines[1] and torch.equal(one.population.rows, other.population.rows)


def two(generation: Generation) -> bool:
    return generation.k == 2


def test_patience_counts_generations_without_an_improvement() -> None:
    assert not Patience(2)(after(0.9, 0.8, 0.8))
    assert Patience(2)(after(0.9, 0.8, 0.8, 0.8)) == "best has not improved for 2 generations: 0.8 since generation 2"
    assert not Patience(2)(after(0.9, 0.8, 0.8, 0.7))


def test_patience_ignores_what_is_smaller_than_the_least_improvement() -> None:
    assert Patience(2, least=0.1)(after(0.9, 0.85, 0.81))
    assert not Patience(2, least=0.1)(after(0.9, 0.85, 0.79))


def test_patience_waits_for_a_first_finite_number_no_longer_than_for_another() -> None:
    assert not Patience(2)(after(None))
    assert Patience(2)(after(None, None)) == "best has not improved for 2 generations: never finite"
    assert not Patience(2)(after(None, None, 0.3))


def test_patience_and_target_know_metrics_that_rise() -> None:
    rising = {"of": "metrics.f1", "mode": "max"}
    assert not Patience(1, **rising)(after(0.5, 0.6, of="metrics.f1"))  # type: ignore[arg-type]
    assert "0.6 since generation 1" in Patience(1, **rising)(after(0.6, 0.5, of="metrics.f1"))  # type: ignore[arg-type]
    assert not Target(0.7, **rising)(after(0.6, of="metrics.f1"))
    assert Target(0.6, **rising)(after(0.6, of="metrics.f1")) == "metrics.f1 is 0.6, and the target is 0.6"


def test_a_target_is_reached_by_what_is_as_low() -> None:
    assert not Target(0.05)(after(0.06))
    assert Target(0.05)(after(0.05))
    assert not Target(0.05)(after(None))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Patience(0), "generations=0 is below 1"),
        (lambda: Patience(3, of="fitnes"), "of='fitnes' is not known"),
        (lambda: Patience(3, of="test"), "of='test' is not known"),
        (lambda: Target(0.1, mode="lower"), "mode='lower' is neither 'min' nor 'max'"),
        (lambda: Target("low"), "value='low' is not a number"),  # type: ignore[arg-type]
        (lambda: fit(stop=3), "stop=3 is not a rule"),
        (lambda: fit(stop=Patience), "is not a rule"),
        (lambda: fit(stop=[Patience(1), "soon"]), "stop='soon' is not a rule"),
        (lambda: fit(stop=Target(0.1, of="test.los")), "Target(0.1, of='test.los') goes by 'test.los', and a network"),
        (lambda: fit(on_interrupt="ignore"), "on_interrupt='ignore' is neither"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(make: Any, said: str) -> None:
    with pytest.raises(RecipeError) as refused:
        make()
    assert said in str(refused.value)


@pytest.mark.parametrize("of", ["test.los", "metrics.f1", "pick.loss"])
def test_a_metric_that_there_is_not_is_refused_before_training(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    monkeypatch.setattr("esgd._fit.training.generations", lambda *_: pytest.fail("a generation was begun"))
    with pytest.raises(RecipeError, match=rf"goes by '{of}', and a network that was measured.*'test\.loss'"):
        fit(stop=Patience(3, of=of))


def test_a_resumed_run_knows_its_metrics_from_its_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(tmp_path, stop=two)
    monkeypatch.setattr("esgd.Supervised.test", lambda *_: pytest.fail("a network was tested for a name"))
    with pytest.raises(RecipeError, match=r"goes by 'test\.los', and a network that was measured"):
        fit(tmp_path, stop=Patience(3, of="test.los"))


def test_what_a_rule_of_ones_own_calls_of_is_its_own_affair() -> None:
    class Mine:
        of = "metrics.late"

        def __call__(self, generation: esgd.Generation) -> bool:
            return generation.k == 2

    assert len(fit(stop=Mine()).history) == 2


def test_any_function_of_a_generation_stops_a_run() -> None:
    result = fit(stop=two)
    assert len(result.history) == result.state.k == 2
    assert result.stopped == "two was true"
    assert "stopped" in result._repr_html_()


def test_a_text_is_the_reason() -> None:
    assert fit(stop=[Patience(9), lambda generation: "enough seen"]).stopped == "<lambda>: enough seen"


def test_a_rule_that_is_true_at_the_end_has_stopped_nothing() -> None:
    result = fit(stop=lambda generation: generation.k == RECIPE.generations)
    assert result.stopped == ""
    assert len(result.history) == RECIPE.generations


def test_the_same_rule_again_returns_what_it_stopped_and_trains_nothing(tmp_path: Path) -> None:
    stopped = fit(tmp_path / "run", stop=Target(100.0))
    seen = list[int]()
    again = fit(tmp_path / "run", stop=Target(100.0), callbacks=[lambda generation: seen.append(generation.k)])
    assert len(again.history) == 1
    assert not seen
    assert again.stopped == stopped.stopped
    assert stopped.stopped.startswith("Target(100.0): best is ")
    assert same(stopped, again)


def test_a_stopped_run_that_is_continued_has_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    assert len(fit(tmp_path / "run", stop=two).history) == 2
    assert len(fit(tmp_path / "run", stop=lambda generation: generation.k == 3).history) == 3
    assert same(fit(tmp_path / "run"), fit())


def test_a_rule_that_was_not_asked_before_a_crash_is_asked_after_it(tmp_path: Path) -> None:
    """The process ends between the save of generation 2 and the question."""
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path / "run", stop=lambda generation: generation.k == 2 and 1 / 0)
    once = fit(tmp_path / "run", stop=lambda generation: generation.k >= 2)
    assert len(once.history) == 2


def test_a_rule_that_fails_is_named_as_the_users(tmp_path: Path) -> None:
    def broken(generation: Generation) -> bool:
        return generation.fitnes < 1  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError) as error:
        fit(tmp_path / "run", stop=broken)
    blamed, farewell = error.value.__notes__
    assert blamed == "Raised by stop=broken, which was given to fit. The run itself is sound."
    assert "1 generation is saved" in farewell


def test_the_generation_of_a_saved_state_is_the_one_that_was_yielded(tmp_path: Path) -> None:
    seen = list[Generation]()
    fit(tmp_path / "run", stop=two, callbacks=[seen.append])
    genome = seen[-1].population.genome
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    state, _ = RunFolder(tmp_path / "run").latest(genome, manifest)
    assert state is not None
    again = last_generation(state)
    ours, theirs = ({**each.record(), "seconds": None} for each in (again, seen[-1]))
    assert ours == theirs
    assert str(again) == str(seen[-1])
    assert again.work.samples == seen[-1].work.samples


def test_a_stopped_folder_that_is_refused_stays_as_it_is(tmp_path: Path) -> None:
    factor = 1.0

    def scaled(output: Tensor, target: Tensor) -> Tensor:
        return factor * F.cross_entropy(output, target)

    fit(tmp_path, stop=Target(100.0), loss=scaled)
    before, factor = (tmp_path / "stop.json").read_bytes(), 2.0
    with pytest.raises(FitnessError, match="scored again it has") as caught:
        fit(tmp_path, stop=Target(100.0), loss=scaled)
    assert not hasattr(caught.value, "__notes__"), "to run the same program again would be refused again"
    assert (tmp_path / "stop.json").read_bytes() == before
    assert not verify(tmp_path).faults


def test_a_stopped_folder_says_so_and_is_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(run, stop=Target(100.0))
    assert json.loads((run / "stop.json").read_text())["k"] == 1
    assert (run / "SHA256SUMS").exists()
    assert not verify(run).faults
    fit(run)
    assert not (run / "stop.json").exists()
