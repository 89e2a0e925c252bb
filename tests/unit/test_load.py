"""esgd.load(): the result of a folder without data or recipe."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

import esgd
from esgd.errors import RecipeError, RunError, TaskError
from esgd.operators import Perturbed, intermediate
from esgd.run import verify
from tests.small import CLASSES, INPUTS, RECORDING_SGD, batchnorm_mlp, classify, mlp, random_data

RECIPE = esgd.Recipe(population=3, offspring=4, generations=2, sgd_epochs=1)
X = random_data(5, seed=5)[0]


def fit(task: Any, folder: Path, recipe: esgd.Recipe = RECIPE, **options: Any) -> esgd.Result:
    given = {"engine": esgd.Loop(threads=1), "progress": False, "report": False, **options}
    return esgd.fit(task, recipe, seed=3, run=folder, **given)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> esgd.Result:
    task = classify(batchnorm_mlp, test=random_data(20, seed=2))
    return fit(task, tmp_path_factory.mktemp("runs") / "mine")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_loaded_result_is_that_of_the_run(trained: esgd.Result) -> None:
    before = contents(trained.run)
    result = esgd.load(str(trained.run), batchnorm_mlp)
    assert torch.equal(result.model(X), trained.model(X))
    assert [torch.equal(a(X), b(X)) for a, b in zip(result.top(3), trained.top(3), strict=True)] == [True] * 3
    assert (result.fitness, result.test, result.history) == (trained.fitness, trained.test, trained.history)
    assert result.run == trained.run
    assert result.recipe == replace(RECIPE, recombination=intermediate), "what was chosen for this network"
    assert repr(result) == repr(trained)
    assert contents(trained.run) == before, "loading only reads"


def test_what_needs_data_says_so_and_takes_a_task(trained: esgd.Result) -> None:
    result = esgd.load(trained.run, batchnorm_mlp)
    with pytest.raises(TaskError, match="loaded without its task"):
        result.ensemble(2)
    with pytest.raises(TaskError, match="loaded without its task"):
        result.soup()
    task = classify(batchnorm_mlp)
    assert result.ensemble(2, task=task).fitness == trained.ensemble(2).fitness
    assert torch.equal(result.soup(task=task, engine="loop")(X), trained.soup()(X))


def test_a_loaded_result_is_continued(trained: esgd.Result) -> None:
    result = esgd.load(trained.run, batchnorm_mlp)
    task, longer = classify(batchnorm_mlp, test=random_data(20, seed=2)), RECIPE.extended(3)
    one, other = (
        esgd.fit(task, longer, seed=3, resume=each, engine=esgd.Loop(threads=1), progress=False)
        for each in (result, trained)
    )
    assert torch.equal(one.population.rows, other.population.rows)


def test_a_network_with_equal_shapes_and_other_layers_is_refused(tmp_path: Path) -> None:
    fit(classify(), tmp_path / "run")

    def other() -> nn.Module:
        return nn.Sequential(nn.Linear(INPUTS, 7), nn.Tanh(), nn.Linear(7, CLASSES))

    named = re.escape("network.layers: '(1): ReLU()' in the folder, '(1): Tanh()' now")
    with pytest.raises(RunError, match=f"belongs to another run, by its manifest.json:\n  {named}"):
        esgd.load(tmp_path / "run", other)
    with pytest.raises(RunError, match=f"belongs to another run, by its manifest.json:\n  {named}"):
        fit(classify(other), tmp_path / "run")
    assert esgd.load(tmp_path / "run", mlp).history


class Applied(nn.Module):
    """A layer whose description has an address in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(INPUTS, CLASSES), lambda x: x

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.linear(x))

    def extra_repr(self) -> str:
        return f"act={self.act}"


def test_an_address_in_memory_in_the_description_of_a_layer_is_no_difference(tmp_path: Path) -> None:
    whole = fit(classify(Applied), tmp_path / "run")
    assert esgd.load(tmp_path / "run", Applied).fitness == whole.fitness
    assert fit(classify(Applied), tmp_path / "run").fitness == whole.fitness, "continued with another address"


def test_a_run_that_is_not_finished_is_loaded_as_far_as_it_is(trained: esgd.Result, tmp_path: Path) -> None:
    shutil.copytree(trained.run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint" / "000002")
    result = esgd.load(tmp_path / "run", batchnorm_mlp)
    assert len(result.history) == 1
    assert result.history == trained.history[:1]


@pytest.mark.parametrize(
    ("make_model", "words"),
    [
        (mlp, "other layers"),
        (batchnorm_mlp(), "make_model is a Sequential"),
        (None, "make_model is a NoneType"),
    ],
)
def test_another_network_is_refused(trained: esgd.Result, make_model: Any, words: str) -> None:
    with pytest.raises((RunError, TaskError), match=words):
        esgd.load(trained.run, make_model)


def test_what_is_no_run_is_named(tmp_path: Path, trained: esgd.Result) -> None:
    with pytest.raises(RunError, match=r"no manifest\.json"):
        esgd.load(tmp_path / "nowhere", mlp)
    assert not (tmp_path / "nowhere").exists()
    shutil.copytree(trained.run, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoint").glob("0*"):
        (path / "tensors.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="no checkpoint that is whole.*cut short"):
        esgd.load(tmp_path / "run", batchnorm_mlp)


def test_a_folder_names_code_only_where_it_is_allowed(tmp_path: Path) -> None:
    policy = esgd.Policy(optimizer=RECORDING_SGD, hyper={"lr": 0.1})
    fit(classify(), tmp_path / "run", replace(RECIPE, species=esgd.species.Fixed(policy=policy)), allow=["tests"])
    with pytest.raises(RunError, match="tests"):
        esgd.load(tmp_path / "run", mlp)
    assert esgd.load(tmp_path / "run", mlp, allow=["tests"]).recipe is not None


def test_a_recipe_that_no_file_can_tell_is_left_out(tmp_path: Path) -> None:
    fit(classify(), tmp_path / "run", replace(RECIPE, mates_from=lambda role: True))
    assert esgd.load(tmp_path / "run", mlp).recipe is None


# A frozen base


class Adapted(nn.Module):
    """A frozen layer, twice under two names, with a trained head and statistics."""

    def __init__(self, base: float = 0.5) -> None:
        super().__init__()
        self.base = nn.Linear(INPUTS, 64).requires_grad_(False)
        nn.init.constant_(self.base.weight, base)
        nn.init.zeros_(self.base.bias)
        self.again = self.base
        self.norm = nn.BatchNorm1d(64, affine=False)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.base(x)))


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> esgd.Result:
    return fit(classify(Adapted), tmp_path_factory.mktemp("adapted") / "run")


def test_the_model_of_a_frozen_base_has_only_what_was_trained(adapted: esgd.Result) -> None:
    with safe_open(adapted.run / "model.safetensors", framework="pt") as file:
        names, metadata = set(file.keys()), file.metadata()
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert names == {"head.weight", "head.bias"} | statistics
    assert "frozen parameters come from make_model" in metadata["esgd"]
    assert verify(adapted.run).faults == ()
    assert fit(classify(Adapted), adapted.run).fitness == adapted.fitness, "a finished run is not mended"


def test_a_frozen_base_comes_from_make_model(adapted: esgd.Result) -> None:
    assert torch.equal(esgd.load(adapted.run, Adapted).model(X), adapted.model(X))
    network = Adapted().eval()
    missing, unexpected = load_model(network, adapted.run / "model.safetensors", strict=False)
    assert {name.split(".")[0] for name in missing} <= {"base", "again"}
    assert not unexpected
    assert torch.equal(network(X), adapted.model(X))


def test_a_base_that_is_drawn_is_drawn_again(tmp_path: Path) -> None:
    class Drawn(Adapted):
        def __init__(self) -> None:
            super().__init__()
            nn.init.normal_(self.base.weight)

    result = fit(classify(Drawn), tmp_path / "run")
    assert torch.equal(esgd.load(tmp_path / "run", Drawn).model(X), result.model(X))


def test_another_base_is_refused(adapted: esgd.Result) -> None:
    with pytest.raises(RunError, match="frozen parameters that make_model builds are not those"):
        esgd.load(adapted.run, lambda: Adapted(base=0.25))
    with pytest.raises(RunError, match="frozen parameters that make_model builds are not those"):
        fit(classify(lambda: Adapted(base=0.25)), adapted.run)


@pytest.mark.parametrize("whole", [False, True])
def test_a_new_run_starts_from_a_model_with_or_without_its_base(
    adapted: esgd.Result, tmp_path: Path, whole: bool
) -> None:
    path = adapted.run / "model.safetensors"
    if whole:  # as earlier versions wrote it
        path = tmp_path / "whole.safetensors"
        save_model(adapted.model, str(path))
    result = fit(classify(Adapted), tmp_path / "run", replace(RECIPE, start=Perturbed(network=str(path))))
    assert result.fitness <= adapted.fitness


def test_a_model_that_lacks_more_than_the_base_is_refused(adapted: esgd.Result, tmp_path: Path) -> None:
    trained = {name: value for name, value in adapted.model.state_dict().items() if name != "head.bias"}
    with pytest.raises(RecipeError, match=r"head\.bias"):
        fit(classify(Adapted), tmp_path / "run", replace(RECIPE, start=Perturbed(network=trained)))
    small = adapted.model.head
    save_model(small, str(tmp_path / "small.safetensors"))
    start = Perturbed(network=str(tmp_path / "small.safetensors"))
    with pytest.raises(RecipeError, match=r"missing.*head\.bias"):
        fit(classify(Adapted), tmp_path / "other", replace(RECIPE, start=start))


def test_the_manifest_knows_the_base(adapted: esgd.Result, trained: esgd.Result) -> None:
    manifest = json.loads((adapted.run / "manifest.json").read_text())
    assert manifest["frozen"]["parameters"] == 64 * (INPUTS + 1)
    assert "frozen" not in json.loads((trained.run / "manifest.json").read_text())
