"""A checkpoint whose words were changed and sealed again is not what a run writes: it is named, never half believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd.operators import CarriedByMate
from esgd.run import checkpoint
from esgd.run.files import digest

X = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
RECIPE = esgd.Recipe(population=3, offspring=4, generations=3, sgd_epochs=1, baggage=CarriedByMate())
Words = dict[str, Any]
Tensors = dict[str, Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def fit(folder: Path) -> esgd.Result:
    task = esgd.Supervised(network, F.cross_entropy, train=(X, Y), fitness=(X, Y), batch_size=16)
    return esgd.fit(task, RECIPE, seed=0, run=folder, engine="loop", progress=False, report=False)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    fit(folder)
    return folder


def in_words(change: Callable[[Words], Any]) -> Callable[[Words, Tensors], Any]:
    return lambda words, tensors: change(words)


def renamed(words: Words, tensors: Tensors) -> None:
    name = next(name for name in tensors if "/baggage/" in name)
    tensors[name.rpartition("/baggage/")[0] + "/baggage/0/x"] = tensors.pop(name)


CHANGES: dict[str, Callable[[Words, Tensors], Any]] = {
    "an id that is a list": in_words(lambda words: words["population"]["births"][0].__setitem__(0, ["0.0.1"])),
    "an id that is no address": in_words(lambda words: words["population"]["births"][0].__setitem__(0, "me")),
    "mates that are words": in_words(lambda words: words["population"]["births"][0].__setitem__(1, ["a"])),
    "a mutation that is a table": in_words(lambda words: words["population"]["births"][0].__setitem__(2, {})),
    "a founder that is a list": in_words(lambda words: words["population"]["births"][0].__setitem__(4, [])),
    "no baggage": in_words(lambda words: words["population"].update(baggage=[])),
    "baggage of a number": in_words(lambda words: words["population"].update(baggage=[1, 2, 3])),
    "a policy without a rate": in_words(lambda words: words["population"]["policies"][0].update(lr="fast")),
    "another number of generations": in_words(lambda words: words.update(k=7)),
    "generations that are words": in_words(lambda words: words.update(k="3")),
    "state of a parameter that is none": renamed,
    "a buffer that is none": lambda words, tensors: tensors.update({"population/buffers/9.x": torch.zeros(3, 1)}),
    "no buffers": lambda words, tensors: [tensors.pop(name) for name in list(tensors) if "/buffers/" in name],
    "rows of another kind": lambda words, tensors: tensors.update(
        {"population/rows": tensors["population/rows"].double()}
    ),
    "a fitness that is no number": lambda words, tensors: tensors["population/fitness"].fill_(torch.nan),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_words_that_no_run_writes_are_damage(
    original: Path, tmp_path: Path, change: Callable[[Words, Tensors], Any]
) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "run"))
    path = folder / "checkpoint" / "000003"
    words = json.loads((path / checkpoint.WORDS).read_text())["state"]
    tensors = {name: tensor.clone() for name, tensor in load_file(path / checkpoint.TENSORS).items()}
    change(words, tensors)
    save_file(tensors, path / checkpoint.TENSORS)
    words["digests"][checkpoint.TENSORS] = digest(path / checkpoint.TENSORS)
    (path / checkpoint.WORDS).write_text(json.dumps(checkpoint.sealed(words)))

    genome = fit(original).population.genome
    with pytest.raises(checkpoint.DamagedError, match="000003 is not what a run writes"):
        checkpoint.load(path, genome, run=words["run"])
    assert fit(folder).fitness == fit(original).fitness, "it goes on from the checkpoint before"
