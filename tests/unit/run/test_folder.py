"""The run folder: what is written, what is refused, and what survives damage."""

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model
from torch import nn
from torch.nn import functional as F

import esgd
from esgd._serialization import decode
from esgd.errors import FitnessError, RecipeError, RunError
from esgd.recipe import Recipe
from esgd.run import read_history

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
RECIPE = Recipe(population=3, offspring=4, generations=3, sgd_epochs=1)


def task(x: torch.Tensor = X, width: int = 5) -> esgd.Supervised:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))

    return esgd.Supervised(make, F.cross_entropy, train=(x, Y), fitness=(x, Y), batch_size=16)


def fit(folder: Path, **changes: object) -> esgd.Result:
    arguments = {"task": task(), "recipe": RECIPE, "seed": 0, "progress": False, "report": False, **changes}
    return esgd.fit(arguments.pop("task"), arguments.pop("recipe"), run=folder, **arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fit(tmp_path / "run")
    return tmp_path / "run"


def test_a_run_leaves_what_the_design_promises(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit(folder, report=True)
    names = {path.name for path in folder.iterdir()}
    assert names >= {"recipe.toml", "manifest.json", "history.jsonl", "checkpoint", "model.safetensors", "report.html"}
    assert [line["k"] for line in read_history(folder / "history.jsonl")] == [1, 2, 3]
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == ["000002", "000003", "history.jsonl"]


def test_the_saved_model_is_the_fittest(folder: Path) -> None:
    result = fit(folder)
    module = result.model
    load_model(module, folder / "model.safetensors")
    assert F.cross_entropy(module(X), Y).item() == pytest.approx(result.fitness)


def test_the_manifest_names_seed_engine_versions_and_data(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert decode(manifest["engine"]) == esgd.Loop(threads=1)
    assert "because the run is short" in manifest["engine_because"]
    assert manifest["versions"]["torch"] == torch.__version__.split("+")[0] or "+" in manifest["versions"]["torch"]
    assert manifest["data"]["train"]["samples"] == 48
    assert len(manifest["data"]["train"]["sha256"]) == 64


def test_a_history_line_has_the_names_that_others_rely_on(folder: Path) -> None:
    line = read_history(folder / "history.jsonl")[-1]
    promised = {
        *("k", "best", "elite_mean", "mean", "fitness", "elites", "offspring_among_elites", "backed_off", "diverged"),
        *("leader", "policies", "births", "ledger", "seconds", "guarantee"),
    }
    assert promised <= line.keys()
    assert line["ledger"].keys() == {"sgd_backward", "sgd_forward", "fitness_sgd", "fitness_evolution", "fitness_saved"}
    assert line["seconds"].keys() == {"sgd", "fitness", "evolution", "checkpoint", "other"}
    assert line["seconds"]["checkpoint"] > 0
    assert len(line["fitness"]) == len(line["births"]) == len(line["policies"]) == 3
    assert line["leader"]["optimizer"] in ("sgd", "adam")


def test_a_finished_run_is_returned_as_it_is(folder: Path) -> None:
    before = (folder / "history.jsonl").read_bytes()
    again = fit(folder)
    assert (folder / "history.jsonl").read_bytes() == before
    assert again.history == read_history(folder / "history.jsonl")


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_policies_it_would_have_drawn(tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole")
    fit(tmp_path / "part")
    rewind(tmp_path / "part", 2)
    part = fit(tmp_path / "part")
    assert [line["policies"] for line in part.history] == [line["policies"] for line in whole.history]
    assert torch.equal(part.population.rows, whole.population.rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"recipe": replace(RECIPE, population=4)}, "recipe.population: 3 in the folder, 4 now"),
        ({"seed": 1}, "seed: 0 in the folder, 1 now"),
        ({"task": task(X + 1)}, "data.train.sha256"),
        ({"task": task(width=6)}, "network.parameters.0.weight"),
    ],
)
def test_a_folder_of_another_run_is_refused_with_the_difference(
    folder: Path, changes: dict[str, object], named: str
) -> None:
    before = (folder / "history.jsonl").read_bytes()
    with pytest.raises(RunError, match="belongs to another run") as refused:
        fit(folder, **changes)
    assert named in str(refused.value)
    assert (folder / "history.jsonl").read_bytes() == before


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match="not the folder of a run"):
        fit(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.slow
def test_a_folder_in_use_is_refused(folder: Path) -> None:
    script = f"""
        import sys, time
        from pathlib import Path
        from esgd.run import RunFolder
        with RunFolder(Path({str(folder)!r})).locked():
            print("locked", flush=True)
            time.sleep(60)
    """
    other = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match="another process"):
            fit(folder)
    finally:
        other.kill()
        other.communicate()


def rewind(folder: Path, k: int) -> None:
    """Make a finished run look as if it had been killed after generation k."""
    for path in (folder / "history.jsonl", folder / "checkpoint" / "history.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:k]))
    for path in (folder / "checkpoint").glob("0*"):
        if int(path.name) > k:
            shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "removed"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, damage: str
) -> None:
    whole = fit(folder)
    path = folder / "checkpoint" / "000003" / name
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        path.unlink()
    mended = fit(folder, progress=True)
    said = capsys.readouterr().err
    assert name in said
    assert "000003" in said
    assert "generation 2" in said
    assert torch.equal(mended.population.rows, whole.population.rows)
    assert len(mended.history) == 3


@pytest.mark.slow
def test_a_half_written_history_line_costs_one_generation(folder: Path) -> None:
    whole = fit(folder)
    text = (folder / "history.jsonl").read_bytes()
    (folder / "history.jsonl").write_bytes(text[:-40])
    again = fit(folder)
    assert len(again.history) == 3
    assert torch.equal(again.population.rows, whole.population.rows)
    assert [line["fitness"] for line in again.history] == [line["fitness"] for line in whole.history]


def damage_checkpoints(folder: Path) -> None:
    for path in (folder / "checkpoint").glob("0*"):
        (path / "state.json").write_text("{}")


def delete_checkpoints(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint")


def delete_checkpoints_and_checksums(folder: Path) -> None:
    delete_checkpoints(folder)
    (folder / "SHA256SUMS").unlink()


def delete_checkpoints_and_history(folder: Path) -> None:
    delete_checkpoints(folder)
    (folder / "history.jsonl").unlink()


@pytest.mark.parametrize("stop", [(), esgd.stopping.Target(100.0)], ids=["whole", "stopped early"])
@pytest.mark.parametrize(
    "damage",
    [damage_checkpoints, delete_checkpoints, delete_checkpoints_and_checksums, delete_checkpoints_and_history],
)
def test_a_finished_run_without_a_whole_checkpoint_is_refused_and_left_as_it_is(
    folder: Path, damage: Callable[[Path], None], stop: object
) -> None:
    damage(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="has a finished run and no checkpoint that is whole.*model.safetensors") as told:
        fit(folder, stop=stop)
    assert str(folder) in str(told.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_that_a_rule_has_stopped_is_not_begun_again_without_its_checkpoints(tmp_path: Path) -> None:
    fit(tmp_path / "run", stop=esgd.stopping.Target(100.0))
    delete_checkpoints(tmp_path / "run")
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="has a finished run and no checkpoint that is whole"):
        fit(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_a_run_without_any_whole_checkpoint_begins_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = fit(folder)
    rewind(folder, 2)
    (folder / "SHA256SUMS").unlink()
    damage_checkpoints(folder)
    again = fit(folder, progress=True)
    assert "Continuing from generation 0" in capsys.readouterr().err
    assert torch.equal(again.population.rows, whole.population.rows)


@pytest.mark.slow
def test_a_full_disk_is_explained_and_harms_no_earlier_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fit(folder)
    rewind(folder, 2)
    kept = {path: path.read_bytes() for path in (folder / "checkpoint").rglob("*") if path.is_file()}
    script = f"""
        import resource, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_folder
        from pathlib import Path
        sys.dont_write_bytecode = True  # a module that is imported only now would leave its first 400 bytes
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        test_folder.fit(Path({str(folder)!r}))
    """
    full = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=600)
    assert full.returncode != 0
    assert "Saving generation 3" in full.stderr
    assert "The state after generation 2 is intact" in full.stderr
    assert "Free some disk space" in full.stderr
    assert {path: path.read_bytes() for path in kept} == kept
    assert len(read_history(folder / "history.jsonl")) == 2
    assert len(fit(folder).history) == 3


def test_a_folder_that_cannot_be_written_is_a_clear_error() -> None:
    with pytest.raises(RunError, match="Opening the run folder") as refused:
        fit(Path("/proc/esgd-run"))
    assert "/proc/esgd-run" in str(refused.value)


@pytest.mark.slow
def test_a_strategy_without_a_name_can_be_saved_and_resumed_from_python(tmp_path: Path) -> None:
    recipe = replace(RECIPE, species=lambda draw: esgd.Policy(optimizer="sgd", hyper={"lr": 0.1}))
    whole = fit(tmp_path / "run", recipe=recipe)
    rewind(tmp_path / "run", 2)
    again = fit(tmp_path / "run", recipe=recipe)
    assert torch.equal(again.population.rows, whole.population.rows)
    assert "not importable" in json.loads((tmp_path / "run" / "manifest.json").read_text())["recipe"]["species"]


def corrupt_first_byte(path: Path) -> None:
    path.write_bytes(b"#" + path.read_bytes()[1:])


def alter_first_line(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(lines[0]), "best": 0.001}), *lines[1:]]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [corrupt_first_byte, alter_first_line], ids=["a byte", "a number"])
def test_a_damaged_history_is_named_kept_aside_and_mended_from_the_checkpoint(
    folder: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    whole = read_history(folder / "history.jsonl")
    damage(folder / "history.jsonl")
    spoilt = (folder / "history.jsonl").read_bytes()
    again = fit(folder, progress=True)
    assert "history.jsonl is not what the checkpoints say" in capsys.readouterr().err
    assert (folder / "history.jsonl.damaged").read_bytes() == spoilt
    assert [line["best"] for line in again.history] == [line["best"] for line in whole]
    assert read_history(folder / "history.jsonl") == again.history


def test_a_folder_in_which_nothing_was_saved_may_be_taken_by_another_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no file 'nofile'"):
        fit(tmp_path / "run", recipe=replace(RECIPE, immigrants=("nofile",)))
    assert len(fit(tmp_path / "run").history) == 3


def test_a_run_does_not_go_on_with_another_loss(tmp_path: Path) -> None:
    fit(tmp_path / "run")
    rewind(tmp_path / "run", 2)
    other = esgd.Supervised(task().model, F.multi_margin_loss, train=(X, Y), fitness=(X, Y), batch_size=16)
    with pytest.raises(RunError, match="data.loss: 'cross_entropy' in the folder, 'multi_margin_loss' now"):
        fit(tmp_path / "run", task=other)


def test_a_run_does_not_go_on_when_the_same_name_computes_something_else(tmp_path: Path) -> None:
    scale = [1.0]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return scale[0] * F.cross_entropy(output, target)

    changing = esgd.Supervised(task().model, loss, train=(X, Y), fitness=(X, Y), batch_size=16)
    fit(tmp_path / "run", task=changing)
    rewind(tmp_path / "run", 2)
    scale[0] = 2.0
    with pytest.raises(FitnessError, match="the loss, the fitness data or the network's code has changed"):
        fit(tmp_path / "run", task=changing)


class Switched(nn.Module):
    """A network whose forward pass can be changed, with the same layers."""

    act = staticmethod(torch.tanh)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.first(x)))


def own_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target)


def doubled_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 2 * F.cross_entropy(output, target)


doubled_loss.__qualname__ = own_loss.__qualname__
doubled_loss.__name__ = own_loss.__name__


def switched(loss: Callable[..., torch.Tensor] = own_loss) -> esgd.Supervised:
    return esgd.Supervised(Switched, loss, train=(X, Y), fitness=(X, Y), batch_size=16)


@pytest.mark.parametrize("stop", [(), esgd.stopping.Target(100.0)], ids=["whole", "stopped early"])
@pytest.mark.parametrize("changed", ["loss", "network"])
def test_a_finished_run_is_not_returned_for_another_loss_or_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str, stop: object
) -> None:
    whole = fit(tmp_path / "run", task=switched(), stop=stop)
    assert fit(tmp_path / "run", task=switched(), stop=stop).fitness == whole.fitness
    if changed == "network":
        monkeypatch.setattr(Switched, "act", staticmethod(torch.cos))
    other = switched(doubled_loss if changed == "loss" else own_loss)
    with pytest.raises(FitnessError, match="the loss, the fitness data or the network's code has changed"):
        fit(tmp_path / "run", task=other, stop=stop)


def test_a_finished_run_with_a_noisy_fitness_is_returned(tmp_path: Path) -> None:
    calls = [0]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return (1 + 0.01 * calls[0]) * F.cross_entropy(output, target)

    whole = fit(tmp_path / "run", task=switched(loss))
    assert whole.history[-1]["guarantee"] == "waived"
    assert fit(tmp_path / "run", task=switched(loss)).fitness == whole.fitness


def test_a_report_that_cannot_be_written_does_not_cost_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run [red] [/x]"
    fit(folder)
    (folder / "report.html").mkdir()
    result = fit(folder, progress=True, report=True)
    assert len(result.history) == 3
    said = capsys.readouterr().err
    assert "No report" in said
    assert "[red] [/x]" in said
