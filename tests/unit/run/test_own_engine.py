"""Runs with an engine that somebody else has written and that a manifest cannot name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import esgd
from esgd.engines import Loop
from esgd.protocols import Setup, Tick
from esgd.testing.evidence import contents, difference
from tests.small import classify

RECIPE = esgd.Recipe(population=2, offspring=2, generations=2, sgd_epochs=1)


def own() -> Any:
    class Own:
        """Its sessions have the four verbs and no more."""

        @contextmanager
        def open(self, setup: Setup, tick: Tick) -> Iterator[Any]:
            with Loop(threads=1).open(setup, tick) as session:
                verbs = {name: getattr(session, name) for name in ("train", "evaluate", "unite", "spent")}
                yield SimpleNamespace(**verbs)

    return Own()


class Refusing:
    def on_run_begin(self, *arguments: Any) -> None:
        raise KeyboardInterrupt


def fit(engine: Any, run: Path | None, **more: Any) -> esgd.Result:
    return esgd.fit(classify(), RECIPE, seed=0, engine=engine, run=run, report=False, **{"progress": False, **more})


def test_it_needs_no_importable_name() -> None:
    ours, loops = fit(own(), None), fit("loop:threads=1", None)
    assert not difference(contents(ours.population), contents(loops.population))


def test_a_folder_in_which_nothing_was_saved_takes_another_engine(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(own(), tmp_path, callbacks=[Refusing()], on_interrupt="raise")
    assert not (tmp_path / "history.jsonl").exists()
    assert len(fit("auto", tmp_path).history) == RECIPE.generations


def test_a_run_continues_with_it_or_with_another_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "r"
    begun = fit(own(), folder, stop=lambda generation: generation.k == 1)
    assert len(begun.history) == 1
    continued = fit("loop:threads=1", folder, progress="plain")
    assert "this run started with one of your own" in "".join(capsys.readouterr())
    assert not difference(contents(continued.population), contents(fit("loop:threads=1", None).population))
