"""What a network keeps outside parameters and buffers begins every epoch and every fitness as it was at first."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import esgd
from esgd.engines.attributes import AttributeSnapshot, ModuleModes
from esgd.randomness import Seeds, handle
from tests.small import CLASSES, INPUTS, classify


class Keeper(nn.Module):
    """A module with one of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("saved", torch.zeros(2))
        self.register_buffer("constant", torch.zeros(2), persistent=False)
        self.number, self.nothing = 1, None
        self.listed, self.named, self.unique = [1, [2]], {"a": [3]}, {4}
        self.window = deque([1, 2], maxlen=2)
        self.tensor, self.tuple = torch.zeros(2), (torch.zeros(1),)
        self.generator = torch.Generator().manual_seed(1)
        self.inner = nn.LSTM(2, 3)

    def plain(self) -> list[Any]:
        return [
            *(self.number, self.nothing, self.listed, self.named, self.unique, self.window),
            *(self.tensor.tolist(), self.tuple[0].tolist(), self.constant.tolist(), self.weight.requires_grad),
            *(self.generator.get_state().tolist(), hasattr(self, "added"), self.inner.hidden_size),
        ]

    def disturb(self) -> None:
        self.number, self.nothing, self.added = 2, torch.ones(1), True
        self.listed.append(5)
        self.listed[1].append(6)
        self.named["a"].clear()
        self.named["b"] = 1
        self.unique.add(7)
        self.window.append(3)
        self.tensor.add_(1)
        self.tuple[0].add_(1)
        self.constant.add_(1)
        self.weight.requires_grad_(False)
        torch.rand(3, generator=self.generator)
        del self.inner.hidden_size


def test_everything_plain_is_put_back_in_place() -> None:
    keeper = Keeper()
    before, objects = repr(keeper.plain()), [id(each) for each in (keeper.listed, keeper.tensor, keeper.generator)]
    snapshot = AttributeSnapshot(keeper)
    for _ in range(2):
        keeper.disturb()
        snapshot.restore()
        assert repr(keeper.plain()) == before
    assert [id(each) for each in (keeper.listed, keeper.tensor, keeper.generator)] == objects


def test_parameters_and_saved_buffers_are_left_alone() -> None:
    keeper = Keeper()
    snapshot = AttributeSnapshot(keeper)
    with torch.no_grad():
        keeper.weight.add_(1)
        keeper.saved.add_(1)
        keeper.inner.weight_hh_l0.zero_()
    snapshot.restore()
    assert keeper.weight.tolist() == [2, 2]
    assert keeper.saved.tolist() == [1, 1]
    assert not keeper.inner.weight_hh_l0.any()
    assert keeper.inner._flat_weights[1] is keeper.inner.weight_hh_l0


class Told(nn.Module):
    def train(self, mode: bool = True) -> Self:
        self.told = mode
        return super().train(mode)


def test_a_mode_is_entered_with_all_that_train_and_eval_do() -> None:
    network = nn.Sequential(Told(), nn.Dropout())
    network[1].eval()
    modes = ModuleModes(network)
    for training in (True, False, True):
        modes.enter(training=training)
        assert network[0].told is network[0].training is network[1].training is training
        network[0].told = None


@pytest.mark.parametrize(
    "make",
    [torch.Generator, lambda: random.Random(1), lambda: np.random.default_rng(1), lambda: np.random.RandomState(1)],
    ids=["torch", "random", "numpy", "numpy legacy"],
)
def test_generators_are_put_back_and_seeded_by_address(make: Any) -> None:
    def draw(owner: nn.Module) -> float:
        own: Any = owner.generator
        return float(torch.rand((), generator=own)) if isinstance(own, torch.Generator) else float(own.uniform(0, 1))

    owner = nn.Module()
    owner.generator = make()
    snapshot = AttributeSnapshot(owner)
    first = draw(owner)
    snapshot.restore()
    assert draw(owner) == first
    drawn = []
    for seed in (0, 1, 0):
        snapshot.reseed(Seeds(seed))
        drawn.append(draw(owner))
    assert drawn[0] == drawn[2] != drawn[1]


def test_generators_of_one_network_have_streams_of_their_own_unless_they_are_one() -> None:
    first, second = nn.Module(), nn.Module()
    first.generator, second.generator = torch.Generator(), torch.Generator()
    first.again = second.again = first.generator
    AttributeSnapshot(nn.ModuleList([first, second])).reseed(Seeds(0))
    assert first.generator.initial_seed() != second.generator.initial_seed()
    assert second.again is first.generator


def test_what_is_no_generator_has_no_handle() -> None:
    assert handle(random.SystemRandom()) is None
    assert handle(3) is None


class Noise(nn.Module):
    """A layer that writes down its noise."""

    seen: list[Tensor] = []  # noqa: RUF012  # of all copies

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(INPUTS, generator=self.generator)
        if self.training:
            Noise.seen.append(noise)
        return x + noise


def test_noise_of_a_networks_own_differs_between_individuals_epochs_and_batches_and_the_guarantee_is_held() -> None:
    Noise.seen.clear()
    recipe = esgd.Recipe(population=2, generations=2, sgd_epochs=2)
    task = classify(lambda: nn.Sequential(Noise(), nn.Linear(INPUTS, CLASSES)))
    generations = list(esgd.evolve(task, recipe, seed=0, engine=esgd.Loop(threads=1)))
    assert [generation.guarantee for generation in generations] == ["held"] * 2
    assert len({tuple(noise.tolist()) for noise in Noise.seen}) == len(Noise.seen) == 2 * 2 * 2 * 3


def test_a_run_with_a_counter_and_a_generator_of_its_own_goes_on_with_the_same_bits() -> None:
    class Both(Noise):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) / self.calls

    recipe = esgd.Recipe(population=2, generations=3, sgd_epochs=1)
    task = classify(lambda: nn.Sequential(Both(), nn.Linear(INPUTS, CLASSES)))
    whole = list(esgd.evolve(task, recipe, seed=0, engine="loop:threads=1"))
    *_, last = esgd.evolve(task, recipe, seed=0, engine="loop:threads=1", resume=whole[0].state)
    assert torch.equal(last.population.rows, whole[-1].population.rows)
