"""Some two hundred odd inputs of every kind, and a judge that can tell right from wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from esgd.errors import RecipeError
from tests.campaign import fuzz, judges

SEED = 20181203
KINDS: list[tuple[Callable[[int, int], Iterator[Any]], Callable[[Any], str | None], int]] = [
    (fuzz.recipes, fuzz.judge_recipe, 70),
    (fuzz.recipes, fuzz.judge_manifest, 10),
    (fuzz.sets, fuzz.judge_sets, 20),
    (fuzz.toml_texts, fuzz.judge_toml, 20),
    (fuzz.engine_words, fuzz.judge_engine, 60),
    (fuzz.state_words, fuzz.judge_state, 10),
    (fuzz.safetensors_headers, fuzz.judge_safetensors, 10),
]


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "judge", "n"), KINDS, ids=[judge.__name__ for _, judge, _ in KINDS])
def test_odd_inputs_are_answered(inputs: Any, judge: Any, n: int) -> None:
    wrong = [(repr(each)[:2000], said) for each in inputs(SEED, n) if (said := judge(each))]
    assert wrong == []


@pytest.mark.parametrize("inputs", [inputs for inputs, judge, _ in KINDS if judge is not fuzz.judge_manifest])
def test_inputs_are_those_of_their_seed(inputs: Any) -> None:
    assert repr(list(inputs(1, 5))) == repr(list(inputs(1, 5))) != repr(list(inputs(2, 5)))


def refuse() -> None:
    raise RecipeError("no")


def fail() -> None:
    raise TypeError("oh")


def run_code() -> None:
    import payload  # type: ignore[import-not-found]

    payload.touch()


def hang() -> None:
    time.sleep(60)


@pytest.mark.parametrize(
    ("act", "verdict"),
    [
        (lambda: None, None),
        (refuse, None),
        (fail, "TypeError: oh"),
        (run_code, "code that an input named was run"),
        (hang, "no answer in 0.2 s"),
    ],
    ids=["well", "refused", "failed", "code", "hang"],
)
def test_a_judge_tells_right_from_wrong(
    act: Callable[[], None], verdict: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges, "LIMIT", 0.2 if act is hang else 60.0)
    assert judges._judged(act) == verdict


def test_judging_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fuzz.judge_sets(["population=0"])
    assert list(tmp_path.iterdir()) == []
