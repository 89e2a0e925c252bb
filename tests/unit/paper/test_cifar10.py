"""CIFAR-10: the networks are He's, the task's fitness is clean, and both scales train."""

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
from esgd.paper.cifar10 import MEAN, STD, Subsampled, resnet8, resnet20, study
from esgd.protocols import Draw
from esgd.randomness import Seeds, global_randomness
from esgd.studies.study import Scale
from esgd.tasks import error_rate
from esgd.tasks.augment import Augmented
from tests.real_data import real_data

Network = Callable[[], nn.Module]
SCALES: list[Scale] = ["mini", "paper"]


def built(make: Network) -> nn.Module:
    with global_randomness(0):
        return make()


def random_images(samples: int) -> tuple[Tensor, Tensor]:
    generator = Seeds(0)("images")
    images = torch.randint(0, 256, (samples, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (samples,), generator=generator)


# Networks


def parameters(widths: tuple[int, ...], blocks: int, *, projected: bool) -> int:
    """He et al. (2016, §4.2), layer by layer: 3×3 convolutions without bias, BatchNorm with two numbers a channel."""
    count, channels = 9 * 3 * widths[0] + 2 * widths[0], widths[0]
    for width in widths:
        for _ in range(blocks):
            count += 9 * channels * width + 2 * width + 9 * width * width + 2 * width
            if projected and channels != width:
                count += channels * width + 2 * width
            channels = width
    return count + channels * 10 + 10


@pytest.mark.parametrize(
    ("make", "expected", "layers"),
    [
        (resnet20, parameters((16, 32, 64), 3, projected=False), 269_722),
        (resnet8, parameters((8, 16, 32), 1, projected=True), 19_954),
    ],
)
def test_the_network_has_the_parameters_that_its_layers_add_up_to(make: Network, expected: int, layers: int) -> None:
    assert sum(p.numel() for p in built(make).parameters()) == expected == layers


def test_the_resnet_20_has_the_0_27_million_parameters_of_he_et_al() -> None:
    assert round(sum(p.numel() for p in built(resnet20).parameters()) / 1e6, 2) == 0.27


@pytest.mark.parametrize(("make", "depth"), [(resnet20, 20), (resnet8, 8)])
def test_the_depth_counts_weighted_layers_but_not_shortcuts(make: Network, depth: int) -> None:
    layers = [m for m in built(make).modules() if isinstance(m, nn.Linear) or getattr(m, "kernel_size", 0) == (3, 3)]
    assert len(layers) == depth


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(resnet20, {(16, 32, 32), (32, 16, 16), (64, 8, 8)}), (resnet8, {(8, 16, 16), (16, 8, 8), (32, 4, 4)})],
)
def test_resolution_halves_where_channels_double(make: Network, sizes: set[tuple[int, ...]]) -> None:
    network, seen = built(make), set()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda _, __, output: seen.add(tuple(output.shape[1:])))
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert seen == sizes


def test_option_a_takes_every_second_pixel_and_pads_new_channels_with_zeros() -> None:
    x = torch.arange(2 * 3 * 4 * 4.0).view(2, 3, 4, 4)
    around = Subsampled(3, 5)(x)
    assert around.shape == (2, 5, 2, 2)
    assert torch.equal(around[:, :3], x[:, :, ::2, ::2])
    assert not around[:, 3:].any()
    assert not list(Subsampled(3, 5).parameters())


@pytest.mark.parametrize("make", [resnet20, resnet8])
def test_one_gradient_step_lowers_the_loss_of_its_batch(make: Network) -> None:
    network, (images, labels) = built(make), random_images(32)
    x = images.float() / 64 - 2
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    before = F.cross_entropy(network(x), labels)
    before.backward()
    optimizer.step()
    with torch.no_grad():
        assert F.cross_entropy(network(x), labels) < 0.99 * before


def test_the_error_rate_is_the_share_of_wrong_answers() -> None:
    output = torch.eye(10)[torch.tensor([1, 2, 3, 4])]
    assert float(error_rate(output, torch.tensor([1, 2, 3, 9]))) == 0.25


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
    for recipe in (made.recipe, made.ours):
        if recipe is not None:
            assert esgd.Recipe.from_dict(recipe.to_dict()) == recipe


def test_the_miniature_drops_its_rate_where_the_paper_does() -> None:
    mini, paper = study("mini").recipe, study("paper").recipe
    share = [[epoch / recipe.total_epochs for epoch in recipe.species.schedule.after] for recipe in (mini, paper)]
    assert share[0] == pytest.approx(share[1], abs=0.5 / mini.total_epochs)
    assert (mini.species.lr, mini.species.hyper) == (paper.species.lr, paper.species.hyper)


def test_our_rules_have_the_population_and_the_epochs_of_the_papers() -> None:
    made = study("mini")
    assert made.ours is not None
    assert made.ours.population == made.recipe.population
    assert made.ours.total_epochs == made.recipe.total_epochs
    assert made.ours.start == made.recipe.start
    assert made.ours.backoff.certain


def small(recipe: esgd.Recipe) -> esgd.Recipe:
    """The same rules for two individuals and one epoch."""
    return replace(recipe, population=2, offspring=2, elites=1, generations=1, sgd_epochs=1, start=RandomStart())


@pytest.mark.parametrize(("scale", "make"), [("mini", resnet8), ("paper", resnet20)])
def test_the_recipe_trains_its_network_on_random_images(scale: Scale, make: Network) -> None:
    images = random_images(64)
    task = Augmented(
        make, F.cross_entropy, train=images, fitness=images, test=images, mean=MEAN, std=STD, metrics={"e": error_rate}
    )
    (generation,) = esgd.evolve(task, small(study(scale).recipe), seed=0, engine=esgd.Loop(threads=1))
    assert generation.guarantee == "held"
    assert 0 < generation.best.fitness < 10
    assert 0 <= task.test(generation.best.module())["e"] <= 1


def test_the_miniature_is_the_same_for_many_networks_at_once() -> None:
    images = random_images(64)
    task = Augmented(resnet8, F.cross_entropy, train=images, fitness=images, mean=MEAN, std=STD)
    fitness = []
    for engine in (esgd.Loop(threads=1), esgd.Vmap(chunk=2, threads=1)):
        (generation,) = esgd.evolve(task, small(study("mini").recipe), seed=0, engine=engine)
        fitness.append(generation.population.fitness.tolist())
    assert fitness[1] == pytest.approx(fitness[0], rel=1e-3)


# Real images


def test_a_task_of_the_miniature_has_images_of_its_own_for_every_seed() -> None:
    made = study("mini", real_data("cifar10"))
    tasks = [made.task(seed) for seed in (0, 0, 1)]
    first, again, other = ([task.describe()[split]["sha256"] for split in ("train", "test")] for task in tasks)
    assert first == again
    assert first[0] != other[0]
    assert first[1] == other[1]
    assert repr(tasks[0]) == "Supervised(train 2000, fitness 2000, test 4000, batch_size=64)"


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
