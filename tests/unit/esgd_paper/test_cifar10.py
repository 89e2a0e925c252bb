"""CIFAR-10: the task's fitness is clean, and both scales train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd.errors import DataError
from esgd.operators import RandomStart
from esgd.protocols import Draw
from esgd.randomness import Seeds, global_randomness
from esgd.studies.study import Scale
from esgd.tasks import Supervised, error_rate
from esgd_paper.cifar10 import MEAN, STD, study
from esgd_paper.networks.convolutional import convolutional
from esgd_paper.networks.residual import resnet20
from esgd_paper.tasks.images import Pictures
from tests.real_data import real_data

Network = Callable[[], nn.Module]
SCALES: list[Scale] = ["mini", "paper"]


def built(make: Network) -> nn.Module:
    with global_randomness(0):
        return make()


def random_images(samples: int, pixels: int) -> tuple[Tensor, Tensor]:
    generator = Seeds(0)("images")
    images = torch.randint(0, 256, (samples, 3, pixels, pixels), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (samples,), generator=generator)


# The study


@pytest.mark.parametrize("scale", SCALES)
def test_a_study_is_made_without_touching_data(scale: Scale, tmp_path: Any) -> None:
    made = study(scale, tmp_path / "nowhere")
    assert made.name == "cifar10"
    with pytest.raises(DataError, match="nowhere"):
        made.task(0)


@pytest.mark.parametrize("scale", SCALES)
def test_its_recipes_can_be_written_down_and_read_back(scale: Scale) -> None:
    made = study(scale)
    for recipe in filter(None, (made.recipe, made.baseline)):
        assert esgd.Recipe.from_dict(recipe.to_dict()) == recipe


def test_the_miniature_drops_its_rate_where_the_paper_does() -> None:
    mini, paper = study("mini").recipe, study("paper").recipe
    share = [[epoch / recipe.total_epochs for epoch in recipe.species.schedule.after] for recipe in (mini, paper)]
    assert share[0] == pytest.approx(share[1], abs=0.5 / mini.total_epochs)


def small(recipe: esgd.Recipe) -> esgd.Recipe:
    """The same rules for two individuals and one epoch."""
    return replace(recipe, population=2, offspring=2, elites=1, generations=1, sgd_epochs=1, start=RandomStart())


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "make", "pixels"), [("mini", convolutional, 16), ("paper", resnet20, 32)])
def test_the_recipe_trains_its_network_on_random_images(scale: Scale, make: Network, pixels: int) -> None:
    images = Pictures(*random_images(64, pixels), mean=MEAN, std=STD)
    task = Supervised(make, F.cross_entropy, train=images, fitness=images, test=images, metrics={"e": error_rate})
    (generation,) = esgd.evolve(task, small(study(scale).recipe), seed=0, engine=esgd.Loop(threads=1))
    assert generation.guarantee == "held"
    assert 0 < generation.best.fitness < 10
    assert 0 <= task.test(generation.best.module())["e"] <= 1


@pytest.mark.slow
def test_the_miniature_is_the_same_for_many_networks_at_once() -> None:
    images = Pictures(*random_images(64, 16), mean=MEAN, std=STD)
    task = Supervised(convolutional, F.cross_entropy, train=images, fitness=images)
    fitness = []
    for engine in (esgd.Loop(threads=1), esgd.Vmap(chunk=2, threads=1)):
        (generation,) = esgd.evolve(task, small(study("mini").recipe), seed=0, engine=engine)
        fitness.append(generation.population.fitness.tolist())
    assert fitness[1] == pytest.approx(fitness[0], rel=1e-3)


# Real images


@pytest.mark.slow
def test_a_task_of_the_miniature_has_images_of_its_own_for_every_seed() -> None:
    made = study("mini", real_data("cifar10"))
    tasks = [made.task(seed) for seed in (0, 0, 1)]
    splits = ("train", "fitness", "test")
    first, again, other = ([task.describe()[split]["sha256"] for split in splits] for task in tasks)
    assert first == again
    assert not set(first) & set(other)
    assert repr(tasks[0]) == "Supervised(train 2000, fitness 1000, test 4000, batch_size=64)"


def test_the_constants_are_the_mean_and_the_deviation_of_the_training_images() -> None:
    described = study("paper", real_data("cifar10")).task(0)
    sums, squares, samples = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    for _, (images, labels) in described.parts():
        sums += images.double().mean(dim=(2, 3)).sum(dim=0)
        squares += (images.double() ** 2).mean(dim=(2, 3)).sum(dim=0)
        samples += len(labels)
    assert samples == 50_000
    assert (sums / samples).tolist() == pytest.approx([0, 0, 0], abs=1e-3)
    assert (squares / samples).tolist() == pytest.approx([1, 1, 1], abs=5e-3)


@pytest.mark.slow
def test_the_miniature_learns_from_real_images() -> None:
    made = study("mini", real_data("cifar10"))
    recipe = replace(made.recipe, population=1, offspring=0, elites=1, mates=1, generations=1, sgd_epochs=2)
    task = made.task(0)
    recipe = replace(recipe, start=RandomStart())
    (generation,) = esgd.evolve(task, recipe, seed=0, engine=esgd.Loop(threads=1))
    assert generation.best.fitness < 2.1  # chance is log 10 = 2.30
    assert task.test(generation.best.module())["error"] < 0.85


@pytest.mark.slow
def test_the_papers_network_takes_real_steps_and_is_evaluated() -> None:
    made = study("paper", real_data("cifar10"))
    task = made.task(0)
    network = built(task.model)
    policy = made.recipe.species(Draw(k=1, j=0, generations=8, stream=Seeds(0)))
    optimizer = torch.optim.SGD(network.parameters(), **policy.hyper)
    losses = []
    for number, batch in enumerate(task.batches(Seeds(0), policy.settings)):
        loss = task.loss(network.train(), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if number == 7:
            break
    assert sum(losses[-3:]) < sum(losses[:3])
    _, (images, labels) = next(iter(task.parts()))
    with torch.no_grad():
        scored = float(task.fitness(network, (images[:128], labels[:128]))) / 128
    assert scored < losses[0]
