"""The look before training, and the verdict after it, as a user meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import esgd
from esgd import Recipe, Supervised
from esgd.cli.training import summary
from esgd.operators import Perturbed
from esgd.sanity import check_is_task
from esgd.sizes import Timed
from esgd.tasks.samples import READ, evenly_spaced
from tests.command import esgd as command
from tests.small import classify, mlp

RECIPE = Recipe(population=8, generations=3, sgd_epochs=12)
WRONG_ADVICE = ("sigma", "lower the top", "Lower their top", "lower elites", "Lower elites", "Anneal")


def kinds(result: esgd.Result) -> list[list[str]]:
    return [[note["kind"] for note in line["notes"]] for line in result.history]


def notes(result: esgd.Result) -> str:
    return " ".join(note["text"] for line in result.history for note in line["notes"])


def run(task: Supervised, recipe: Recipe = RECIPE, **given: Any) -> esgd.Result:
    return esgd.fit(task, recipe, seed=0, engine="loop", **{"progress": False, **given})


def split(x: Tensor, y: Tensor) -> dict[str, Any]:
    return {"train": (x[:300], y[:300]), "fitness": (x[300:450], y[300:450]), "test": (x[450:], y[450:])}


def network(outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, outputs))


def tiny_features(scale: float = 1e-3) -> Supervised:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(600, 10, generator=g)
    y = (x @ torch.randn(10, generator=g) > 0).long()
    return Supervised(network(2), F.cross_entropy, **split(x * scale, y))


def large_targets() -> Supervised:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(600, 10, generator=g)
    y = 2e5 + 1e5 * torch.tanh(x @ torch.randn(10, generator=g) / 3)[:, None]
    return Supervised(network(1), F.mse_loss, **split(x, y))


@pytest.mark.parametrize(("task", "kind"), [(tiny_features(), "scale"), (large_targets(), "targets")])
def test_data_of_a_wrong_scale_get_the_advice_that_helps_and_no_other(task: Supervised, kind: str) -> None:
    result = run(task)
    assert kind in kinds(result)[0]
    assert kinds(result)[-1] == ["constant"]
    assert "esgd.scaled(task)" in notes(result)
    assert not [advice for advice in WRONG_ADVICE if advice in notes(result)]


@pytest.mark.parametrize("task", [tiny_features(), large_targets()])
def test_the_advice_helps(task: Supervised) -> None:
    result, constant = run(esgd.scaled(task)), esgd.scaled(task).constant_fitness()
    assert constant is not None
    assert result.fitness < 0.3 * constant
    assert not {"scale", "targets", "untrained", "constant"} & {kind for line in kinds(result) for kind in line}


def test_sound_data_get_no_note_before_and_no_verdict_after() -> None:
    assert not {"scale", "constant"} & {kind for line in kinds(run(tiny_features(scale=1.0))) for kind in line}


def test_networks_that_are_all_one_are_noted() -> None:
    def make() -> nn.Module:
        torch.manual_seed(7)
        return mlp()

    recipe = Recipe(population=3, generations=1, sgd_epochs=1)
    assert "identical" in kinds(run(classify(make), recipe))[0]
    assert "all 3 individuals start as one" in notes(run(classify(make), recipe))
    assert "identical" not in kinds(run(classify(), recipe))[0]
    assert "identical" not in kinds(run(classify(make), Recipe(population=3, generations=1, start=Perturbed())))[0]


class Listed(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


def test_nan_that_the_look_has_missed_is_named_when_all_have_diverged() -> None:
    x, y = torch.randn(400, 10, generator=torch.Generator().manual_seed(0)), torch.arange(400) % 2
    assert 38 not in evenly_spaced(400, READ)
    x[38] = torch.nan
    task = Supervised(network(2), F.cross_entropy, train=Listed(x, y), fitness=(torch.randn(50, 10), y[:50]))
    result = run(task, Recipe(population=3, generations=2, sgd_epochs=1))
    assert [kind for line in kinds(result) for kind in line if kind in ("nan", "diverged")] == ["diverged", "nan"]
    assert "the first at index 38." in notes(result)


def test_notes_on_the_data_are_said_before_training_and_once(capfd: pytest.CaptureFixture[str]) -> None:
    run(tiny_features(), Recipe(population=3, generations=1, sgd_epochs=1), progress="plain")
    said = capfd.readouterr().err
    assert said.count("Initial weights and learning-rate ranges are made for") == 1
    assert said.index("note: The values of input 0") < said.index("k=1")


def test_a_resumed_run_does_not_say_them_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = Recipe(population=3, generations=1, sgd_epochs=1)
    once = run(tiny_features(), recipe, run=tmp_path / "r", report=False)
    capfd.readouterr()
    again = run(tiny_features(), recipe, run=tmp_path / "r", report=False, progress="plain")
    assert "made for values of about 1" not in capfd.readouterr().err
    assert again.history == once.history


def test_evolve_has_them_in_its_first_generation() -> None:
    recipe = Recipe(population=3, generations=2, sgd_epochs=1)
    first, second = esgd.evolve(tiny_features(), recipe, seed=0, engine="loop")
    assert "scale" in [note.kind for note in first.notes]
    assert "scale" not in [note.kind for note in second.notes]


def test_a_look_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(task: Supervised, network: nn.Module) -> list[Any]:
        return []

    recipe = Recipe(population=3, generations=2, sgd_epochs=1)
    looked = run(tiny_features(), recipe)
    monkeypatch.setattr(Supervised, "look", blind)
    unseen = run(tiny_features(), recipe)
    assert torch.equal(looked.population.rows, unseen.population.rows)
    assert kinds(looked)[0] != kinds(unseen)[0]


TASK = """
import torch
from torch import nn
from torch.nn import functional as F
import esgd

x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)) * 1e-4
y = (x[:, 0] > 0).long()
task = esgd.Supervised(lambda: nn.Linear(3, 2), F.cross_entropy, train=(x, y), fitness=(x, y))
"""


def test_a_run_whose_time_is_over_has_the_verdict_too() -> None:
    clock = Timed(seconds=1e-4, shares=(1.0,), pace=(1e-3,), rest=(1e-5,))
    result = run(tiny_features(), Recipe(population=3, generations=4, sgd_epochs=clock))
    assert result.stopped == "the time of 0.0001 s is over"
    assert "constant" in kinds(result)[-1]


def test_a_run_that_is_extended_has_the_verdict_at_its_new_end(tmp_path: Path) -> None:
    recipe = Recipe(population=3, generations=1, sgd_epochs=1)
    folder = {"run": tmp_path / "r", "report": False}
    assert "constant" in kinds(run(tiny_features(), recipe, **folder))[-1]
    longer = run(tiny_features(), recipe.extended(3), extend=True, **folder)
    assert ["constant" in line for line in kinds(longer)] == [True, False, True]


def test_a_run_that_a_rule_stops_says_the_verdict(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its history lines are those of a run that was not stopped, so they do not have it."""
    recipe = Recipe(population=3, generations=4, sgd_epochs=1)
    result = run(tiny_features(), recipe, stop=lambda generation: generation.k == 2, progress="plain")
    assert "note: At the end the best fitness is" in capfd.readouterr().err
    assert "constant" not in kinds(result)[-1]
    assert "no better than that of a constant answer" in str(summary(tmp_path, result)["verdict"])


def test_the_summary_of_a_command_has_a_line_for_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(TASK)
    sizes = ("--set", "population=3", "--set", "generations=1", "--set", "sgd_epochs=1")
    done = command("run", "tiny:task", *sizes, "--engine", "loop", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no better than that of a constant answer" in done.stdout


X, Y = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ((X.double(), Y), r"float64 \(4, 6\), int64 \(4,\); of fitness float32"),
        ((X[:, :5], Y), r"float32 \(4, 5\), int64 \(4,\); of fitness float32 \(4, 6\)"),
        ((X, Y.float()), r"float32 \(4, 6\), float32 \(4,\); of fitness"),
        (torch.utils.data.TensorDataset(X.half(), Y), r"float16 \(4, 6\)"),
    ],
    ids=["dtype", "shape", "target", "dataset"],
)
@pytest.mark.parametrize("given", [{"engine": "auto"}, {"engine": "loop", "budget": "1h"}], ids=["engine", "budget"])
def test_training_data_that_do_not_fit_are_named_before_anything_is_trained(
    train: Any, words: str, given: dict[str, Any]
) -> None:
    task = Supervised(lambda: nn.Linear(6, 3), F.cross_entropy, train=train, fitness=(X, Y))
    with pytest.raises(esgd.errors.TaskError, match=f"cannot be trained on train.*{words}"):
        esgd.fit(task, seed=0, progress=False, **given)


@pytest.mark.parametrize(
    "inputs", [(10 * X).long(), (10 * X).long().numpy(), X > 0, X.half()], ids=lambda x: str(x.dtype)
)
def test_inputs_that_the_network_takes_as_float32_only_are_named_with_what_to_do(inputs: Any) -> None:
    task = Supervised(lambda: nn.Linear(6, 3), F.cross_entropy, train=(inputs, Y), fitness=(inputs, Y))
    dtype = str(inputs.dtype).removeprefix("torch.")
    with pytest.raises(esgd.errors.TaskError, match=rf"takes float32, .* {dtype} \(4, 6\).*x.astype\('float32'\)"):
        esgd.fit(task, seed=0, progress=False, engine="loop")


def test_arrays_of_half_precision_are_cast() -> None:
    task = Supervised(lambda: nn.Linear(6, 3), F.cross_entropy, train=(X.half().numpy(), Y), fitness=(X, Y))
    assert task._train.data()[0].dtype == torch.float32


def test_a_network_that_takes_no_data_yet_is_not_refused_by_the_trial() -> None:
    """It may wait for a device: what is scored first says what is wrong."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        raise RuntimeError("Expected all tensors to be on the same device")

    task = Supervised(lambda: nn.Linear(6, 3), loss, train=(X, Y), fitness=(X, Y))
    with pytest.raises(esgd.errors.TaskError, match="a freshly built network cannot be scored"):
        esgd.fit(task, Recipe(population=2), seed=0, progress=False, engine="loop")


@pytest.mark.parametrize(
    ("given", "words"),
    [(None, "task is None, and no task"), (nn.Linear(6, 3), "task is a Linear, .* A network alone"), (mlp, "function")],
    ids=["nothing", "network", "function"],
)
def test_what_is_no_task_is_refused_with_the_way_to_make_one(given: Any, words: str) -> None:
    for recipe in (Recipe(population=2), None):
        with pytest.raises(esgd.errors.TaskError, match=rf"{words}.*esgd\.Supervised\(make_model, loss, train="):
            esgd.evolve(given, recipe, seed=0)
        with pytest.raises(esgd.errors.TaskError, match=words):
            esgd.fit(given, recipe, seed=0, progress=False)


@pytest.mark.parametrize("name", ["steps", "size", "test", "describe"])
def test_a_task_that_lacks_a_method_is_refused_by_its_name(name: str) -> None:
    class Lacking(Supervised):
        pass

    setattr(Lacking, name, None)
    task = Lacking(lambda: nn.Linear(6, 3), F.cross_entropy, train=(X, Y), fitness=(X, Y))
    for recipe in (Recipe(population=2), None):
        with pytest.raises(esgd.errors.TaskError, match=rf"task is a Lacking, and no task: it has no {name}\(\)\."):
            esgd.fit(task, recipe, seed=0, progress=False)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.int32])
def test_labels_of_a_kind_that_the_loss_does_not_take_are_left_to_it(dtype: torch.dtype) -> None:
    task = Supervised(lambda: nn.Linear(6, 3), F.cross_entropy, train=(X, Y.to(dtype)), fitness=(X, Y.to(dtype)))
    with pytest.raises(esgd.errors.TaskError, match="a freshly built network cannot be scored"):
        run(task)


def test_a_task_of_any_class_is_taken_by_its_methods() -> None:
    class Around:
        """Passes everything on to a task."""

        def __init__(self, task: Supervised) -> None:
            self._task = task

        def __getattr__(self, name: str) -> Any:
            return getattr(self._task, name)

    task: Any = Around(classify())
    check_is_task(task)


def with_label(label: int, at: int = 3) -> Tensor:
    labels = Y.clone()
    labels[at] = label
    return labels


@pytest.mark.parametrize("label", [3, 10**9, -1])
@pytest.mark.parametrize("name", ["train", "fitness", "test", "pick"])
@pytest.mark.parametrize("given", [{"recipe": Recipe()}, {"engine": "loop", "budget": "1h"}], ids=["recipe", "budget"])
def test_a_label_without_an_output_is_named_before_anything_is_trained(
    name: str, label: int, given: dict[str, Any]
) -> None:
    splits = {"train": (X, Y), "fitness": (X, Y), name: (X, with_label(label))}
    task = Supervised(lambda: nn.Linear(6, 3), F.cross_entropy, **splits)
    words = f"{name} has the label {label} at index 3. The network has 3 outputs.* 1 of its 40 samples\\."
    with pytest.raises(esgd.errors.TaskError, match=words):
        esgd.fit(task, seed=0, progress=False, **given)


def test_a_label_without_an_output_is_named_in_a_dataset_if_the_look_reads_it() -> None:
    data = torch.utils.data.ConcatDataset([torch.utils.data.TensorDataset(X, with_label(9, at=14))])
    task = Supervised(lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(), train=data, fitness=(X, Y))
    with pytest.raises(esgd.errors.TaskError, match="train has the label 9 at index 14"):
        run(task)


def test_labels_of_pixels_and_of_dicts_are_looked_at() -> None:
    x, y = torch.randn(40, 2, 3), with_label(5)[:, None].repeat(1, 3)
    task = Supervised(lambda: nn.Conv1d(2, 3, 1), F.cross_entropy, train=(x, y), fitness=(x, y % 3))
    with pytest.raises(esgd.errors.TaskError, match="train has the label 5 at index 3"):
        run(task)

    class Named(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    task = Supervised(
        lambda: Named(6, 3), F.cross_entropy, train={"x": X, "labels": with_label(5)}, fitness={"x": X, "labels": Y}
    )
    with pytest.raises(esgd.errors.TaskError, match="train has the label 5 at index 3"):
        run(task)


@pytest.mark.parametrize(
    ("loss", "label"), [(F.cross_entropy, -100), (nn.CrossEntropyLoss(ignore_index=-1), -1)], ids=["default", "own"]
)
def test_the_label_that_a_loss_ignores_is_not_refused(loss: Any, label: int) -> None:
    task = Supervised(lambda: nn.Linear(6, 3), loss, train=(X, with_label(label)), fitness=(X, Y))
    assert run(task, Recipe(population=3, generations=1, sgd_epochs=1)).fitness < torch.inf


def test_labels_that_a_task_changes_itself_are_not_refused() -> None:
    class Halved(Supervised):
        def loss(self, module: nn.Module, batch: Any) -> Tensor:
            return super().loss(module, (batch[0], batch[1] // 2))

    task = Halved(lambda: nn.Linear(6, 3), F.cross_entropy, train=(X, 2 * Y), fitness=(X, Y))
    run(task, Recipe(population=3, generations=1, sgd_epochs=1))
