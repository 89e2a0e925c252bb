"""The model and the ensemble of a run in the formats that others serve: the same outputs, for any number of samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

import esgd
from esgd import Ensemble
from tests.small import INPUTS, batchnorm_mlp, classify, random_data

BATCH = {0: torch.export.Dim("batch")}
FEW, MANY = torch.randn(3, INPUTS), torch.randn(11, INPUTS)


@pytest.fixture(scope="module")
def result() -> esgd.Result:
    recipe = esgd.Recipe(population=4, offspring=4, generations=1, sgd_epochs=1)
    task = classify(batchnorm_mlp, fitness=random_data(70, seed=1))
    return esgd.fit(task, recipe, seed=0, engine=esgd.Loop(threads=1), progress=False)


@pytest.fixture(params=["model", "ensemble"])
def network(result: esgd.Result, request: pytest.FixtureRequest) -> nn.Module:
    return result.top(1)[0] if request.param == "model" else Ensemble(result.top(3), average="softmax").eval()


@pytest.fixture
def _torch_warns_of_itself() -> Iterator[None]:
    """torch calls TorchScript deprecated, and its ONNX exporter uses what torch itself calls so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


def shapes(network: nn.Module) -> Any:
    """How torch.export wants the number of samples to be left open: an ensemble takes any inputs."""
    return {"inputs": (BATCH,)} if isinstance(network, Ensemble) else (BATCH,)


def assert_same(network: nn.Module, other: Any) -> None:
    for x in (FEW, MANY):
        with torch.no_grad():
            torch.testing.assert_close(torch.as_tensor(other(x)), network(x))


@pytest.mark.usefixtures("_torch_warns_of_itself")
def test_torchscript_gives_the_same_outputs(network: nn.Module, tmp_path: Path) -> None:
    torch.jit.trace(network, FEW).save(str(tmp_path / "network.pt"))
    assert_same(network, torch.jit.load(str(tmp_path / "network.pt")))


def test_torch_export_gives_the_same_outputs(network: nn.Module, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(network, (FEW,), dynamic_shapes=shapes(network)), tmp_path / "network.pt2")
    assert_same(network, torch.export.load(tmp_path / "network.pt2").module())


@pytest.mark.usefixtures("_torch_warns_of_itself")
def test_onnx_gives_the_same_outputs(network: nn.Module, tmp_path: Path) -> None:
    import onnxruntime

    path = tmp_path / "network.onnx"
    torch.onnx.export(network, (FEW,), path, dynamo=True, verbose=False, dynamic_shapes=shapes(network))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def served(x: Tensor) -> Any:
        return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]

    assert_same(network, served)


def test_safetensors_give_the_same_outputs(network: nn.Module, tmp_path: Path) -> None:
    save_model(network, str(tmp_path / "network.safetensors"))
    fresh = Ensemble([batchnorm_mlp() for _ in range(3)], average="softmax")
    other = fresh if isinstance(network, Ensemble) else batchnorm_mlp()
    load_model(other.eval(), tmp_path / "network.safetensors")
    assert_same(network, other)


def test_an_ensemble_on_a_frozen_base_is_saved_with_one_base(tmp_path: Path) -> None:
    def adapted() -> nn.Module:
        network = nn.Sequential(nn.Linear(INPUTS, 2000), nn.ReLU(), nn.Linear(2000, 3))
        network[0].requires_grad_(False)
        nn.init.constant_(network[0].weight, 0.1)
        nn.init.zeros_(network[0].bias)
        return network

    recipe = esgd.Recipe(population=4, offspring=4, generations=1, sgd_epochs=1)
    result = esgd.fit(classify(adapted), recipe, seed=0, engine=esgd.Loop(threads=1), progress=False)
    save_model(Ensemble(result.top(4)), str(tmp_path / "ensemble.safetensors"))
    base, head = 2000 * (INPUTS + 1), 3 * 2001
    assert (tmp_path / "ensemble.safetensors").stat().st_size < 4 * (base + 4 * head) + 4000
