"""Run folders from before the experiments became a package of their own are read: they name values by former names.

The folders in `before/` were written when `esgd.paper.ptb:Patient` and `esgd.paper.acoustics:Halving` were their names,
and are never written again. Beside them is the whole history as it was then.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import esgd as library
from esgd._names.entry_points import RENAMED, current_name, offered
from esgd._names.trust import imported
from esgd._serialization import decode
from esgd.errors import ForeignCodeError, RunError
from esgd.operators import intermediate
from esgd.recipe import Recipe
from esgd_paper.species.plateau import Plateau
from tests.command import esgd
from tests.unit.esgd_paper.before import tasks

BEFORE = Path(__file__).with_name("before")
RUNS = {"patient": (tasks.language, tasks.patient), "halving": (tasks.classes, tasks.single)}
NAMES = ("id", "seconds", "notes", "schedule", "leader")


def close(now: Any, before: Any) -> bool:
    """Equal; numbers up to the rounding of another processor."""
    if isinstance(before, dict):
        return all(close(now[name], value) for name, value in before.items() if name not in NAMES)
    if isinstance(before, list):
        return len(now) == len(before) and all(map(close, now, before))
    return bool(now == (pytest.approx(before, rel=1e-6) if isinstance(before, float) else before))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_folder_with_former_names_resumes_with_its_bits(name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(BEFORE / name, tmp_path / "run"))
    assert "esgd.paper." in (folder / "manifest.json").read_text()
    task, recipe = RUNS[name]
    result = library.fit(task, recipe, seed=5, run=folder, engine="loop", progress=False, report=False)
    assert close(result.history, json.loads((BEFORE / f"{name}.json").read_text()))
    assert esgd("verify", folder, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_with_former_names_reads_as_the_recipe_of_today(name: str) -> None:
    table = json.loads((BEFORE / name / "manifest.json").read_text())["recipe"]
    assert (
        Recipe.from_dict(table, allow=["esgd_paper"]).described()
        == replace(RUNS[name][1], recombination=intermediate).described()
    )


def test_a_former_name_needs_the_word_that_the_current_one_needs() -> None:
    table = json.loads((BEFORE / "halving" / "manifest.json").read_text())["recipe"]
    with pytest.raises(ForeignCodeError, match="'esgd_paper.species.plateau:Plateau'.*--allow-code esgd_paper"):
        Recipe.from_dict(table)


def test_another_run_is_still_told_from_this_one_by_what_differs(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(BEFORE / "halving", tmp_path / "run"))
    other = library.Recipe(**{**vars(tasks.single), "species": Plateau(policy=tasks.single.species.policy, factor=0.1)})
    with pytest.raises(RunError, match="recipe.species.factor: 0.5 in the folder, 0.1 now") as refused:
        library.fit(tasks.classes, other, seed=5, run=folder, engine="loop", progress=False, report=False)
    assert "kind" not in str(refused.value)


@pytest.mark.parametrize("former", ["esgd.paper.acoustics:Halving", "esgd.paper.ptb:Plateau"])
def test_halving_and_plateau_are_one_thing(former: str) -> None:
    policy = {"kind": "policy", "optimizer": "sgd", "hyper": {"lr": 1.0}}
    patience = {"patience": 0} if former.endswith("Plateau") else {}
    read = decode({"kind": former, "policy": policy, "factor": 0.5, **patience}, allow=["esgd_paper"])
    assert read == Plateau(policy=read.policy, patience=0, factor=0.5)


@pytest.mark.parametrize("former", offered(RENAMED))
def test_every_former_name_leads_to_a_class(former: str) -> None:
    module, _, name = former.rpartition(".")
    assert isinstance(imported(current_name(f"{module}:{name}")), type)


def test_a_name_that_was_never_changed_stays() -> None:
    assert current_name("mypackage.species:Mine") == "mypackage.species:Mine"
