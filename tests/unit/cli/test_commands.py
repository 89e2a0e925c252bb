"""The command line as a person meets it. Some commands are real processes; the others are called in this one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from esgd._serialization import read_toml
from esgd.errors import MissingDataError
from esgd.recipe import Recipe
from esgd.studies import find_study
from tests.command import esgd
from tests.warm import python

SMALL = [
    "--set",
    "population=3",
    "--set",
    "offspring=4",
    "--set",
    "generations=2",
    "--set",
    "sgd_epochs=1",
]

TASK = """
import torch
from torch import nn
from torch.nn import functional as F
import esgd
import esgd.studies

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
task = esgd.Supervised(lambda: nn.Linear(4, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
number = 7
broken = lambda seed: 1 / 0
nothing = lambda seed: None
narrow = esgd.Supervised(lambda: nn.Linear(3, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
study = esgd.studies.Study(
    name="../[b]mine",
    about="…",
    task=lambda seed: task,
    recipe=esgd.Recipe(
        population=3, generations=1, species=lambda draw: esgd.Policy(optimizer="sgd", hyper={"lr": 0.1})
    ),
)


def slow_task(seed):
    import time

    def loss(output, target):
        time.sleep(0.02)
        return F.cross_entropy(output, target)

    return esgd.Supervised(lambda: nn.Linear(4, 2), loss, train=(x, y), fitness=(x, y), batch_size=8)
"""


def real_esgd(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "esgd", *arguments, cwd=cwd, env={**os.environ, "COLUMNS": "200"})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(TASK)
    (tmp_path / "unfit.py").write_text("task = undefined")
    return tmp_path


@pytest.mark.slow
def test_run_prints_json_on_standard_output_and_nothing_else(home: Path) -> None:
    done = real_esgd("run", "digits", *SMALL, "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["generations"] == answer["guarantee_held"] == 2
    assert (home / answer["run"] / "model.safetensors").is_file()
    assert done.stderr.count("k=") == 2, "one plain line for each generation when there is no terminal"


@pytest.mark.slow
def test_quiet_says_nothing(home: Path) -> None:
    done = real_esgd("run", "mine:task", "--set", "generations=1", "--quiet", "--json", cwd=home)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.slow
def test_resume_of_a_finished_run_gives_its_result_again(home: Path) -> None:
    first = json.loads(esgd("run", "digits", *SMALL, "--run", "r", "--json", cwd=home).stdout)
    again = esgd("resume", "r", "--json", cwd=home)
    assert json.loads(again.stdout) == first


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_an_interrupted_run_says_how_to_go_on_and_does(home: Path) -> None:
    arguments = [sys.executable, "-m", "esgd", "run", "mine:slow_task", "--run", "r", "--set", "generations=3"]
    process = subprocess.Popen(
        [*arguments, "--set", "population=3"], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    history = home / "r" / "history.jsonl"
    for _ in range(600):
        if history.is_file() and history.read_text().count("\n") >= 1:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "esgd resume r --allow-code mine" in said
    assert "Traceback" not in said
    resumed = esgd("resume", "r", "--allow-code", "mine", "--engine", "pool:workers=1", "--json", cwd=home)
    assert "Pool(inner=Loop(" in resumed.stderr
    assert "this run started with Loop(" in resumed.stderr
    assert "The results are bit-identical." in resumed.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["generations"] == 3


def test_a_run_that_its_rule_has_stopped_continues_only_if_asked(home: Path) -> None:
    stopped = esgd("run", "mine:task", *SMALL, "--run", "r", "--stop", "target:100,of=elite_mean", "--json", cwd=home)
    summary = json.loads(stopped.stdout)
    assert summary["generations"] == 1
    assert summary["stopped"].startswith("Target(100, of='elite_mean'): elite_mean is ")
    assert "esgd resume r --allow-code mine --stop none" in stopped.stderr
    again = esgd("resume", "r", "--allow-code", "mine", "--json", cwd=home)
    assert json.loads(again.stdout) == summary, "the rule is the folder's, so nothing is trained"
    assert "was stopped early: Target(100" in (home / "r" / "report.html").read_text()
    resumed = esgd("resume", "r", "--allow-code", "mine", "--stop", "none", "--json", cwd=home)
    whole = esgd("run", "mine:task", *SMALL, "--run", "w", "--json", cwd=home)
    assert json.loads(resumed.stdout) == {**json.loads(whole.stdout), "run": "r"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('{"rules": 3}', "stop.json is damaged"),
        ('{"rules": [3]}', "a rule in it is no table"),
        ('{"rules": [{"kind": "os:system"}]}', "--stop none"),
        ('{"rules": [{"kind": "patience", "generations": 0}]}', "generations=0 is below 1"),
    ],
)
def test_a_stop_rule_of_a_stranger_is_data(home: Path, words: str, said: str) -> None:
    esgd("run", "mine:task", *SMALL, "--run", "r", "--stop", "target:100", "--quiet", cwd=home)
    (home / "r" / "stop.json").write_text(words)
    done = esgd("resume", "r", "--allow-code", "mine", cwd=home)
    assert done.returncode == 3
    assert said in done.stderr


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("patiance:3", "cannot be imported"),
        ("patience", "generations='' is not a number"),
        ("soon", "it is not a rule. Known: none, patience, target."),
        ("patience:3,off=mean", "there is no setting 'off'. Did you mean 'of'?"),
        ("patience:3,mean", "'mean' has no value"),
    ],
)
def test_what_is_no_rule_is_refused_before_a_folder_is_made(home: Path, rule: str, said: str) -> None:
    done = esgd("run", "mine:task", "--run", "r", "--stop", rule, cwd=home)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (home / "r").exists()


@pytest.mark.slow
def test_compare_prints_the_arms_and_writes_a_report(home: Path) -> None:
    done = esgd("compare", "digits", *SMALL, "--seeds", "2", "--json", "--out", "c", cwd=home)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert list(answer["arms"]) == ["single", "population", "no_evolution", "esgd"]
    for entries in answer["arms"].values():
        assert [entry["seed"] for entry in entries] == [0, 1]
        assert {"fitness", "top", "test", "ledger", "seconds"} <= entries[0].keys()
    epochs = {arm: entries[0]["ledger"]["sgd_backward"] for arm, entries in answer["arms"].items()}
    assert epochs["population"] == epochs["no_evolution"] == epochs["esgd"]
    for name in ("report.html", "figure-1.png", "figure-2.png", "table-1.md"):
        assert (home / "c" / name).stat().st_size > 100
    table = esgd("compare", "digits", *SMALL, "--seeds", "2", "--quiet", "--out", "c", cwd=home).stdout
    assert "population baseline" in table
    assert "ESGD w/o evolution" in table


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What `explain` says of the digits here, on GPUs and on a cluster: as JSON, and in words."""
    asked = ("explain", "digits", "--gpus", "4", "--workers", "4", "--per-node", "2")
    home = tmp_path_factory.mktemp("explained")
    return json.loads(esgd(*asked, "--tflops", "2", "--json", cwd=home).stdout), esgd(*asked, cwd=home).stdout


@pytest.mark.slow
def test_explain_gives_the_resolved_recipe_under_its_names(explained: tuple[dict[str, Any], str]) -> None:
    answer, words = explained
    assert answer["recipe"]["population"] == answer["symbols"]["μ"] == 16
    assert answer["recipe"]["offspring"] == answer["symbols"]["λ"] == 64
    assert answer["symbols"]["m"] == 9
    assert answer["cost"]["sgd_epochs"] == 16 * 8 * 5
    assert answer["cost"]["parameters"] == 64 * 64 + 64 + 64 * 10 + 10
    assert answer["cost"]["seconds"] > 0
    assert "μ = 16" in words


@pytest.mark.slow
def test_the_elites_of_a_study_follow_its_population(home: Path) -> None:
    """Nine of sixteen; a smaller population is not refused."""
    asked = ("explain", "digits", "--set", "population=8", "--json")
    assert json.loads(esgd(*asked, cwd=home).stdout)["symbols"]["m"] == 4


@pytest.mark.slow
def test_explain_reckons_other_devices(explained: tuple[dict[str, Any], str]) -> None:
    costs = explained[0]["cost"]
    here, there = costs["matrix_tflops_here"], 4 * 2.0
    assert costs["seconds_on_gpus"] == pytest.approx(costs["seconds_in_sequence"] * here / there)
    assert "on 4 GPUs" in explained[1]


@pytest.mark.slow
def test_explain_predicts_a_cluster(explained: tuple[dict[str, Any], str]) -> None:
    costs = explained[0]["cost"]["cluster"]
    assert costs["workers"] == 4
    assert costs["sgd"] == pytest.approx(4 * costs["seconds_per_individual"]), "16 individuals"
    assert "on 4 workers, one core each" in explained[1]


@pytest.mark.slow
def test_explain_needs_no_corpus(home: Path) -> None:
    """A pass over the real data takes a thousand times as long as over what is invented here."""
    told = esgd("explain", "bn50", "--scale", "paper", "--data", "nowhere", "--json", cwd=home)
    assert "invented frames of the right shape, reckoned up to 45 hours" in told.stderr
    costs = json.loads(told.stdout)["cost"]
    assert costs["parameters"] == 7_657_864
    assert costs["sgd_epochs"] == 100 * 20
    assert costs["seconds_per_epoch"] > 60
    assert costs["samples"] > 2000 * 3 * 45 * 360_000


@pytest.mark.parametrize("what", ["bn50", "swb300", "cifar10", "ptb"])
def test_every_experiment_can_be_rehearsed_without_its_data(what: str, tmp_path: Path) -> None:
    study = find_study(what, scale="paper", data=tmp_path)
    with pytest.raises(MissingDataError):
        study.task(0)
    assert study.rehearsal is not None
    assert study.rehearsal.task().steps({}) >= 1  # type: ignore[operator]


@pytest.mark.slow
def test_a_budget_on_the_command_line_trains_by_the_default_rules(home: Path) -> None:
    asked = ("run", "digits", "--budget", "20s", "--run", "timed", "--engine", "loop", "--json")
    done = esgd(*asked, "--stop", "target:1000", cwd=home)
    assert done.returncode == 0, done.stderr
    recipe = Recipe.from_dict(read_toml((home / "timed" / "recipe.toml").read_text()))
    assert recipe.clock is not None
    assert recipe.clock.seconds == 20
    other = esgd("run", "digits", "--budget", "40s", "--run", "timed", "--engine", "loop", cwd=home)
    assert other.returncode == 3
    assert "a budget of 20 s" in other.stderr


@pytest.mark.slow
def test_a_run_that_begins_with_a_baseline_is_made_and_resumed(home: Path) -> None:
    """Penn Treebank: one network first, in a folder of its own; a second call, or `resume`, finds both."""
    words = [f"w{number}" for number in range(40)] + ["<unk>"]
    (home / "ptb").mkdir()
    for split, length in (("train", 3000), ("valid", 400), ("test", 400)):
        text = " ".join(words[(i * i // 3 + i) % len(words)] for i in range(length))
        (home / "ptb" / f"ptb.{split}.txt").write_text(f" {text} \n")
    asked = ("run", "ptb", "--data", ".", "--run", "r", "--set", "generations=1", "--engine", "loop", "--json")
    first = esgd(*asked, cwd=home)
    assert first.returncode == 0, first.stderr
    assert (home / "r-baseline" / "model.safetensors").is_file()
    for again in (asked, ("resume", "r", "--data", ".", "--json")):
        done = esgd(*again, cwd=home)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["fitness"] == json.loads(first.stdout)["fitness"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("digits", "--data", "."), "brings its own data"),
        (("ptb@paper", "--scale", "mini"), "Say one of the two"),
        (("bn50", "--data", "mine.py"), "is a file"),
    ],
)
def test_what_cannot_be_asked_for_is_said(home: Path, arguments: tuple[str, ...], sentence: str) -> None:
    asked = esgd("explain", *arguments, cwd=home)
    assert asked.returncode == 2
    assert sentence in asked.stderr


def test_damaged_frames_are_not_taken_for_missing_ones(home: Path) -> None:
    (home / "train.npz").write_text("garbage")
    asked = esgd("explain", "bn50", "--scale", "paper", "--data", ".", cwd=home)
    assert asked.returncode == 2
    assert "not an npz file" in asked.stderr


def test_data_that_nobody_knows_are_named(home: Path) -> None:
    asked = esgd("data", "cifar100", cwd=home)
    assert asked.returncode == 2
    assert "cifar10" in asked.stderr
    assert "Traceback" not in asked.stderr


def test_list_names_what_is_built_in(home: Path) -> None:
    rooms = json.loads(esgd("list", "--json", cwd=home).stdout)
    assert "digits" in rooms["tasks"]
    assert {"sgd", "adam", "mixture"} <= rooms["species"].keys()
    assert {"roulette", "elitist", "gaussian", "per_epoch"} <= rooms["operators"].keys()


@pytest.mark.slow
def test_offspring_follow_the_population_unless_given(home: Path) -> None:
    assert (
        json.loads(esgd("explain", "mine:task", "--set", "population=5", "--json", cwd=home).stdout)["symbols"]["λ"]
        == 20
    )


@pytest.mark.slow
def test_a_toml_file_describes_a_study(home: Path) -> None:
    (home / "study.toml").write_text(
        'task = "mine:task"\n[recipe]\npopulation = 4\nmates = [1, 2]\ngenerations = 1\n'
        '[recipe.species]\nkind = "adam"\nlr = [1e-3, 1e-2]\n[recipe.backoff]\nkind = "per_epoch"\n'
    )
    answer = json.loads(esgd("explain", "study.toml", "--allow-code", "mine", "--json", cwd=home).stdout)
    assert answer["symbols"]["ρ"] == [1, 2]
    assert answer["recipe"]["backoff"] == {"kind": "per_epoch", "probability": 1.0}
    assert esgd("run", "study.toml", "--allow-code", "mine", "--json", cwd=home).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "digit"], 2, ["'digit' is not a task", "Did you mean 'digits'"]),
        (["run", "nowhere.toml"], 2, ["no file 'nowhere.toml'"]),
        (["run", "mine:tsak"], 2, ["'mine:tsak' cannot be imported", "tsak"]),
        (["run", "nobody:task"], 2, ["'nobody:task' cannot be imported", "PYTHONPATH"]),
        (["run", "mine:number"], 2, ["'mine:number' is a int", "esgd.Supervised"]),
        (["run", "mine:broken"], 2, ["mine:broken(seed=0) raised ZeroDivisionError", "--debug"]),
        (["run", "mine:nothing"], 2, ["mine:nothing(seed=0) returned None"]),
        (["run", "unfit:task"], 2, ["importing 'unfit:task' raised NameError"]),
        (["run", "digits", "--set", "mutation=rank"], 2, ["not the shape of a Mutation"]),
        (["run", "digits", "--set", "popluation=3"], 2, ["'popluation'", "Did you mean 'population'"]),
        (["run", "digits", "--budget", "30"], 2, ["budget='30' cannot be read", "no unit", "'30m'"]),
        (["run", "digits", "--budget", "30m", "--rules", "ours", "--work", "1e6"], 2, ["--work 1e+06", "one of them"]),
        (["run", "digits", "--set", "population"], 2, ["no value", "NAME=VALUE"]),
        (["run", "digits", "--set", "population=0"], 2, ["population=0", "whole number ≥ 1"]),
        (["run", "digits", "--set", "elites=120"], 2, ["elites=120 exceeds population=16", "elites=0.6"]),
        (["run", "digits", "--set", "mates=99"], 2, ["mates=99", "population=16"]),
        (["run", "digits", "--set", "mutation.sgima=0.1"], 2, ["'sgima'", "Did you mean 'sigma'"]),
        (["run", "digits", "--set", "mutatoin.sigma=0.1"], 2, ["'mutatoin'", "Did you mean 'mutation'"]),
        (["run", "digits", "--set", "backoff=per_epohc"], 2, ["'per_epohc'", "Did you mean 'per_epoch'"]),
        (["run", "digits", "--set", "species.species.7.lr=1"], 2, ["'7' is not a place"]),
        (["run", "digits", "--engine", "warp"], 2, ["engine='warp'", "auto"]),
        (["resume", "nowhere"], 3, ["'nowhere' is not the folder of a run"]),
        (["report", "nowhere"], 3, ["nowhere"]),
        (["frobnicate"], 2, ["No such command"]),
    ],
)
def test_bad_input_is_named_without_a_traceback(home: Path, arguments: list[str], code: int, words: list[str]) -> None:
    done = esgd(*arguments, cwd=home)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("task = 'digits'\n[recipe]\npopulatoin = 3\n", ["'populatoin'", "Did you mean 'population'"]),
        ("task = 'digits'\nreciep = 1\n", ["unknown key 'reciep'", "Did you mean 'recipe'"]),
        ("[recipe]\npopulation = 3\n", ["does not say what to train"]),
        ("task = \n", ["cannot be read as TOML"]),
        ("task = 'bad.toml'\n", ["does not say what to train"]),
        ("task = 'digits'\nrecipe = 5\n", ["recipe=5", "is not a table"]),
        ("task = 'digits'\n[recipe.mating]\nkind = 'roulete'\n", ["'roulete'", "Did you mean 'roulette'"]),
    ],
)
def test_a_bad_toml_file_is_explained(home: Path, text: str, words: list[str]) -> None:
    (home / "bad.toml").write_text(text)
    done = esgd("run", "bad.toml", cwd=home)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.slow
def test_a_table_without_a_kind_changes_the_strategy_that_is_there(home: Path) -> None:
    text = "task = 'digits'\n[recipe]\nbackoff = 'never'\n[recipe.mutation]\nsigma = 0.02\n[recipe.start]\nepochs = 1\n"
    (home / "natural.toml").write_text(text)
    recipe = json.loads(esgd("explain", "natural.toml", "--json", cwd=home).stdout)["recipe"]
    assert recipe["mutation"] == {"kind": "gaussian", "sigma": 0.02}
    assert recipe["backoff"] == {"kind": "never"}
    assert recipe["start"]["kind"] == "perturbed"
    assert recipe["start"]["sigma"] == 0.01


def test_a_network_that_does_not_fit_the_data_is_explained(home: Path) -> None:
    done = esgd("run", "mine:narrow", cwd=home)
    assert done.returncode == 2
    assert "a freshly built network cannot be scored" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_study_made_in_python_runs_as_it_is_in_a_folder_with_a_plain_name(home: Path) -> None:
    done = esgd("run", "mine:study", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == "runs/b-mine-0"


@pytest.mark.slow
def test_debug_shows_the_traceback(home: Path) -> None:
    assert "Traceback" in real_esgd("--debug", "run", "digit", cwd=home).stderr


@pytest.mark.slow
def test_a_run_begun_in_python_is_resumed_in_python(home: Path) -> None:
    script = "import esgd, mine; esgd.fit(mine.task, esgd.Recipe(generations=1), seed=0, run='r', progress=False)"
    assert python("-c", script, cwd=home).returncode == 0
    done = esgd("resume", "r", cwd=home)
    assert done.returncode == 3
    assert "esgd.fit" in done.stderr


@pytest.mark.slow
def test_output_into_a_closed_pipe_is_not_an_error(home: Path) -> None:
    command = f"{sys.executable} -m esgd list | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=home, timeout=300)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_watch_serves_a_page_until_it_is_interrupted(tmp_path: Path) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "esgd", "watch", str(tmp_path), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/", watching.stdout.readline())[0]
        with urlopen(address, timeout=300) as answer:
            assert b"Populations in training" in answer.read()
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=300) == 130
        watching.stdout.close()


def test_watch_says_what_is_no_folder(tmp_path: Path) -> None:
    done = esgd("watch", "nowhere", cwd=tmp_path)
    assert done.returncode == 3
    assert "is not there" in done.stderr


@pytest.mark.slow
def test_several_runs_are_reported_together(tmp_path: Path) -> None:
    for seed in ("0", "1"):
        esgd("run", "digits", *SMALL, "--seed", seed, "--run", f"run-{seed}", "--quiet", cwd=tmp_path)
    done = esgd("report", "run-0", "run-1", "--out", "both", cwd=tmp_path)
    assert done.stdout.strip() == str(Path("both") / "report.html")
    assert "| run-0 | 0, 1 |" in (tmp_path / "both" / "table-1.md").read_text()
    again = esgd("report", "run-0", "run-0", cwd=tmp_path)
    assert again.returncode == 3
    assert "given twice" in again.stderr


@pytest.mark.parametrize("command", ["resume", "report", "verify", "export"])
def test_a_home_folder_that_the_shell_has_left_alone_is_found(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = esgd(command, "~/nothing", cwd=tmp_path)
    assert done.returncode == 3
    assert str(tmp_path / "nothing") in done.stderr
