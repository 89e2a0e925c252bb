"""Rules side by side: equal work, seeds paired, continued after an interruption, refused before anything is trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from esgd.errors import RecipeError
from esgd.load import load
from esgd.recipe import Recipe
from esgd.report import Run, beside_tables
from esgd.studies import Study, compete
from esgd.tasks import Supervised
from tests.command import esgd

WORK = 40_000


def task(seed: int) -> Supervised:
    x = torch.randn(160, 4, generator=torch.Generator().manual_seed(seed))
    y = (x[:, 0] > 0).long()
    return Supervised(
        lambda: nn.Linear(4, 2),
        F.cross_entropy,
        train=(x[:100], y[:100]),
        fitness=(x[100:130], y[100:130]),
        test=(x[130:], y[130:]),
    )


STUDY = Study(
    name="mine", about="Points on two sides of a plane.", task=task, recipe=Recipe(population=4, generations=2)
)


def contest(out: Path, *rules: str, seeds: tuple[int, ...] = (0, 1)) -> list[Run]:
    return compete(STUDY, rules, seeds=seeds, out=out, work=WORK, engine="loop:threads=1", progress=False)


def test_rules_spend_the_same_work_and_their_seeds_are_paired(tmp_path: Path) -> None:
    runs = contest(tmp_path, "ours", "single")
    assert [(run.of, run.manifest["seed"]) for run in runs] == [("ours", 0), ("ours", 1), ("single", 0), ("single", 1)]
    assert [run.entry["work"] for run in runs] == pytest.approx([WORK] * 4, rel=0.03)
    reached, paired = beside_tables(runs)
    assert [row[:2] for row in reached.rows] == [("ours", "0, 1"), ("single", "0, 1")]
    assert [row[0] for row in paired.rows] == ["ours − single"]


def test_a_contest_continues_where_it_stopped(tmp_path: Path) -> None:
    contest(tmp_path, "single", seeds=(0,))
    model = tmp_path / "single" / "seed-0" / "model.safetensors"
    before = model.stat().st_mtime_ns
    contest(tmp_path, "single", "swa")
    assert model.stat().st_mtime_ns == before
    assert sorted(path.parent.name for path in tmp_path.glob("*/seed-1")) == ["single", "swa"]


def test_the_own_recipe_competes_and_the_others_have_its_work(tmp_path: Path) -> None:
    own, single = compete(STUDY, ["recipe", "single"], seeds=[0], out=tmp_path, engine="loop:threads=1", progress=False)
    assert own.manifest["recipe"]["population"] == 4
    assert single.entry["work"] == pytest.approx(own.entry["work"], rel=0.05)
    with pytest.raises(RecipeError, match="work=40000 is for rules"):
        contest(tmp_path, "recipe", "single")


def test_all_rules_begin_with_the_network_of_the_run_that_comes_first(tmp_path: Path) -> None:
    first = replace(STUDY.recipe, population=1, elites=1, mates=1, offspring=0, evolution_steps=0, sgd_epochs=40)
    study = replace(STUDY, baseline=first)
    (run,) = compete(study, ["single"], seeds=[0], out=tmp_path, work=5_000, engine="loop:threads=1", progress=False)
    begun = load(tmp_path / "baseline" / "seed-0", task(0).model)
    (alone,) = contest(tmp_path / "alone", "single", seeds=(0,))
    assert run.entry["fitness"] <= begun.fitness < alone.history[0]["best"]


@pytest.mark.parametrize(
    ("rules", "said"),
    [(("ours", "singel"), "Did you mean 'single'"), (("ours", "ours"), "twice, or none"), ((), "twice, or none")],
)
def test_a_wrong_list_is_refused_before_anything_is_trained(tmp_path: Path, rules: tuple[str, ...], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        contest(tmp_path, *rules)
    assert not list(tmp_path.iterdir())


def test_the_command_prints_what_was_reached_and_writes_a_report(tmp_path: Path) -> None:
    words = (
        "compare",
        "digits",
        "--rules",
        "ours,swa",
        "--work",
        "1.5e5",
        "--engine",
        "loop:threads=1",
        "--out",
        "out",
    )
    done = esgd(*words, "--quiet", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told["rules"]) == ["ours", "swa"]
    assert told["rules"]["swa"][0]["work"] == pytest.approx(1.5e5, rel=0.02)
    assert (tmp_path / "out" / "report.html").is_file()


def test_work_without_rules_is_refused(tmp_path: Path) -> None:
    done = esgd("compare", "digits", "--work", "1e5", cwd=tmp_path)
    assert done.returncode == 2
    assert "--work 100000 is for --rules" in done.stderr
