"""How numbers are computed: precision, layout, threads and device, the same on every engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd import Loop, Pool, Vmap
from esgd.engines.computing import Computing, cores, torch_threads
from esgd.errors import RecipeError
from esgd.species import Fixed
from tests.small import CLASSES, INPUTS, classify, mlp, random_data

RECIPE = esgd.Recipe(
    population=2,
    offspring=2,
    generations=1,
    sgd_epochs=4,
    species=Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 0.2, "momentum": 0.9})),
)


def learnable(**changes: Any) -> esgd.Supervised:
    """Labels that follow from the inputs, so that training has something to learn."""
    x, _ = random_data(128)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return classify(train=(x, y), fitness=(x, y), **changes)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize(
    "engine",
    [
        Loop(threads=1, precision="bf16"),
        Vmap(chunk=2, threads=1, precision="bf16"),
        Pool(inner=Loop(precision="bf16"), workers=1),
        Pool(inner=Vmap(chunk=2, precision="bf16"), workers=1),
    ],
    ids=str,
)
def test_bf16_trains_and_the_weights_stay_as_they_are(engine: Any) -> None:
    (generation,) = esgd.evolve(learnable(), RECIPE, seed=0, engine=engine)
    assert generation.population.rows.dtype == torch.float32
    assert float(generation.population.fitness.min()) < 0.8 * min(fitness for _, fitness in generation.before)
    weights = generation.population.rows
    assert not torch.equal(weights, weights.bfloat16().float()), "weights are kept in full precision"
    assert generation.guarantee == "held"


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Loop(threads=1), Vmap(chunk=2, threads=1)], ids=str)
def test_bf16_is_really_computed_in_bf16(engine: Any) -> None:
    seen = set()

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(INPUTS, CLASSES, bias=False)  # adding a bias may be done in full precision

        def forward(self, x: Tensor) -> Tensor:
            output = self.inner(x)
            if self.training:  # before training, a few samples are tried as they are
                seen.add(output.dtype)
            return output

    task = esgd.Supervised(Looks, F.cross_entropy, train=random_data(48), fitness=random_data(70))
    list(esgd.evolve(task, RECIPE, seed=0, engine=type(engine)(precision="bf16", threads=1)))
    assert seen == {torch.bfloat16}
    seen.clear()
    list(esgd.evolve(task, RECIPE, seed=0, engine=engine))
    assert seen == {torch.float32}


@pytest.mark.parametrize("engine", [Loop, Vmap, Computing])
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"precision": "fp16"}, "precision='fp16' is not known. Use 'float32'.*or 'bf16'"),
        ({"device": "nonsense"}, "device='nonsense' cannot be used here.*Use device='cpu'"),
        ({"threads": 0}, "threads=0 is not 1 or more"),
        ({"threads": True}, "threads=True is not 1 or more"),
        ({"threads": 1.5}, "threads=1.5 is not 1 or more"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name_and_value(engine: Any, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        engine(**wrong)


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize(
    "engine",
    [Loop(precision="bf16"), Vmap(precision="bf16"), Pool(inner=Loop(precision="bf16"), workers=1)],
    ids=lambda engine: type(engine).__name__,
)
def test_bf16_is_refused_for_a_network_that_autocast_leaves_alone(engine: Any) -> None:
    (x, y), (other, of_other) = random_data(48), random_data(70, seed=1)
    task = classify(lambda: mlp().double(), train=(x.double(), y), fitness=(other.double(), of_other))
    with pytest.raises(RecipeError, match="precision='bf16' has no effect.*are float64.*Use precision='float32'"):
        next(esgd.evolve(task, RECIPE, seed=0, engine=engine))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(RecipeError, match="device='cuda' cannot be used here"):
        Loop(device="cuda")


def image_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),  # a normalisation takes a bias out again
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


def test_channels_last_is_the_same_up_to_rounding_and_is_really_used() -> None:
    layouts = set()

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = image_net()

        def forward(self, x: Tensor) -> Tensor:
            layouts.add(x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous())
            return self.inner(x)

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 3, 6, 6, generator=generator), torch.randint(CLASSES, (24,), generator=generator)
    task = esgd.Supervised(Looks, F.cross_entropy, train=(x, y), fitness=(x, y), batch_size=8)
    (plain,) = esgd.evolve(task, RECIPE, seed=0, engine=Loop(threads=1))
    assert layouts == {False}
    layouts.clear()
    (other,) = esgd.evolve(task, RECIPE, seed=0, engine=Loop(threads=1, channels_last=True))
    assert layouts == {True}
    torch.testing.assert_close(other.population.rows, plain.population.rows, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(other.population.fitness, plain.population.fitness, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Loop(threads=3), Vmap(chunk=2, threads=3)], ids=str)
def test_torchs_threads_are_the_engines_while_it_works_and_the_callers_after(engine: Any) -> None:
    before, seen = torch.get_num_threads(), set()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            seen.add(torch.get_num_threads())
        return F.cross_entropy(output, target)

    task = esgd.Supervised(mlp, loss, train=random_data(48), fitness=random_data(70))
    for generation in esgd.evolve(task, RECIPE, seed=0, engine=engine):
        assert torch.get_num_threads() == before, "the caller's while a generation is looked at"
        del generation
    assert 3 in seen
    assert torch.get_num_threads() == before


def test_threads_are_left_alone_where_none_are_asked_for() -> None:
    before = torch.get_num_threads()
    with torch_threads(None):
        assert torch.get_num_threads() == before
    assert cores() >= 1


def test_only_images_change_their_layout() -> None:
    computing = Computing(channels_last=True)
    image, flat = torch.zeros(2, 3, 4, 4), torch.zeros(2, INPUTS)
    moved = computing.to_device((image, {"flat": flat, "word": "left alone", "labels": torch.zeros(2, 1, 1, 1).long()}))
    assert moved[0].is_contiguous(memory_format=torch.channels_last)
    assert moved[1]["flat"] is flat
    assert moved[1]["word"] == "left alone"
    assert torch.equal(moved[0], image)
