"""Pictures: what SGD sees is shifted and mirrored at an address; what selection sees is every image as it is."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import esgd
from esgd import Supervised
from esgd.errors import TaskError
from esgd.randomness import Seeds
from esgd.testing import check_task
from esgd_paper.tasks.images import Pictures, flip_and_crop

SIDE, PADDING = 6, 4
MEAN, STD = (100.5, 120.5, 90.5), (60.0, 50.0, 40.0)
Split = tuple[Tensor, Tensor]


def pictures(samples: int, *, seed: int = 0, side: int = SIDE) -> Split:
    """Random bytes in three channels, and a label of ten."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, 3, side, side), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def plain(labels: Tensor) -> Split:
    """Images of one colour each, the label times 20: whose they are can be told from any pixel."""
    return (20 * labels.byte()).view(-1, 1, 1, 1).expand(-1, 3, SIDE, SIDE).contiguous(), labels


def normalised(images: Tensor) -> Tensor:
    return (images.float() - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * SIDE * SIDE, 10)
    )


def task(train: Split, *, test: Split | None = None, augment: Any = flip_and_crop, **changes: Any) -> Supervised:
    look = {"mean": MEAN, "std": STD}
    return Supervised(
        network,
        F.cross_entropy,
        train=Pictures(*train, **look, augment=augment),
        fitness=Pictures(*train, **look),
        test=None if test is None else Pictures(*test, **look),
        batch_size=16,
        **changes,
    )


# Mirrored and cropped


def moved(image: Tensor, mirror: bool, top: int, left: int) -> Tensor:
    """One image (channels, h, w) mirrored or not, and cut out of its frame pixel by pixel."""
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for c, y, x in product(range(channels), range(height), range(width)):
        from_y, from_x = y + top - PADDING, x + left - PADDING
        if 0 <= from_y < height and 0 <= from_x < width:
            out[c, y, x] = image[c, from_y, width - 1 - from_x if mirror else from_x]
    return out


MOVES = list(product((False, True), range(2 * PADDING + 1), range(2 * PADDING + 1)))


def test_every_crop_is_an_exact_shift_of_the_image_or_of_its_mirror_image_in_a_frame_of_zeros() -> None:
    image = torch.rand(1, 4, 5, generator=Seeds(0)("image")) + 1
    cropped = flip_and_crop(image.expand(3000, 1, 4, 5), Seeds(0)("moves"))
    possible = torch.stack([moved(image, *move) for move in MOVES])
    found = (cropped[:, None] == possible).flatten(2).all(dim=2)
    assert found.any(dim=1).all()
    # All 162 moves happen, and evenly. A shift by a whole image leaves zeros alone, so those moves look alike.
    distinct = [i for i, one in enumerate(possible) if one.any()]
    counts = found[:, distinct].sum(dim=0)
    assert counts.min() > 0
    assert counts.max() < 4 * 3000 / len(MOVES)
    mirrored = found[:, [i for i in distinct if MOVES[i][0]]].any(dim=1).float().mean()
    straight = found[:, [i for i in distinct if not MOVES[i][0]]].any(dim=1).float().mean()
    assert abs(mirrored - straight) < 0.06


def test_images_of_a_batch_are_moved_independently_of_one_another() -> None:
    images = normalised(pictures(1, side=32)[0]).expand(64, 3, 32, 32)
    assert len(flip_and_crop(images, Seeds(0)("one")).flatten(1).unique(dim=0)) > 32


def test_all_channels_of_an_image_move_together() -> None:
    image = torch.rand(50, 1, 8, 8, generator=Seeds(0)("image")).expand(50, 3, 8, 8)
    cropped = flip_and_crop(image, Seeds(0)("moves"))
    assert torch.equal(cropped[:, 0], cropped[:, 1])
    assert torch.equal(cropped[:, 0], cropped[:, 2])


def test_the_images_themselves_are_left_alone() -> None:
    images = normalised(pictures(8)[0])
    before = images.clone()
    flip_and_crop(images, Seeds(0)("moves"))
    assert torch.equal(images, before)


# Training batches


def test_labels_stay_with_their_images() -> None:
    labels = torch.arange(50) % 10
    seen = []
    for images, dealt in task(plain(labels)).batches(Seeds(0), {}):
        colours = normalised(plain(dealt)[0])
        assert ((images == colours) | (images == 0)).all()
        assert (images == colours).flatten(1).any(dim=1).all()
        seen.append(dealt)
    assert torch.equal(torch.cat(seen).sort().values, labels.sort().values)


def test_the_frame_is_filled_with_the_mean_colour() -> None:
    """Zero after the normalisation, not black before it."""
    (images, _), *_ = task(plain(torch.arange(16) % 10)).batches(Seeds(0), {})
    assert set(images.unique().tolist()) <= {0.0, *normalised(plain(torch.arange(10))[0]).unique().tolist()}
    assert (images == 0).any()


def everything(task: Supervised, seeds: Seeds) -> tuple[Tensor, Tensor]:
    images, labels = zip(*task.batches(seeds, {}), strict=True)
    return torch.cat(images), torch.cat(labels)


def test_the_same_address_has_the_same_pixels_whatever_the_global_generators_do() -> None:
    made = task(pictures(40))
    first = everything(made, Seeds(0, ("sgd", 3, 1, "data", 2)))
    torch.manual_seed(1)
    again = everything(made, Seeds(0, ("sgd", 3, 1, "data", 2)))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


def test_dealing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    everything(task(pictures(40)), Seeds(0))
    assert torch.equal(torch.get_rng_state(), before)


SAME = (pictures(1)[0].expand(32, 3, SIDE, SIDE).contiguous(), torch.zeros(32, dtype=torch.int64))


@pytest.mark.parametrize(
    "other",
    [Seeds(1, ("sgd", 3, 1, "data", 2)), Seeds(0, ("sgd", 3, 0, "data", 2)), Seeds(0, ("sgd", 3, 1, "data", 3))],
)
def test_another_run_individual_or_epoch_has_other_pixels(other: Seeds) -> None:
    """All images are one, so that the order does not matter."""
    here, there = (everything(task(SAME), seeds)[0] for seeds in (Seeds(0, ("sgd", 3, 1, "data", 2)), other))
    assert not torch.equal(here, there)


def test_every_batch_of_an_epoch_has_moves_of_its_own() -> None:
    (first, _), (second, _) = task(SAME).batches(Seeds(0), {})
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("rows", "settings"), [(1, {}), (3, {}), (4, {"batch_size": 7})])
def test_epochs_dealt_together_are_the_epochs_dealt_alone(rows: int, settings: dict[str, Any]) -> None:
    made = task(pictures(40))
    seeds = [Seeds(0, ("sgd", 1, j, "data", 0)) for j in range(rows)]
    together = list(made.batches_together(seeds, settings))
    assert len(together) == made.steps(settings)
    for j, each in enumerate(seeds):
        for (images, labels), (row_images, row_labels) in zip(together, made.batches(each, settings), strict=True):
            assert torch.equal(images[j], row_images)
            assert torch.equal(labels[j], row_labels)


def test_without_augmentation_batches_are_the_normalised_images_in_random_order() -> None:
    train = pictures(40)
    images, labels = everything(task(train, augment=None), Seeds(0))
    order = torch.randperm(40, generator=Seeds(0)("order"))
    assert torch.equal(images, normalised(train[0][order]))
    assert torch.equal(labels, train[1][order])
    assert not torch.equal(order, torch.arange(40))


def noisy(images: Tensor, generator: torch.Generator) -> Tensor:
    return images + torch.randn(images.shape, generator=generator)


def test_an_augmentation_of_ones_own_gets_normalised_images_and_an_addressed_generator() -> None:
    train = pictures(16)
    ((images, _),) = task(train, augment=noisy).batches(Seeds(0), {})
    ((clean, _),) = task(train, augment=None).batches(Seeds(0), {})
    assert torch.equal(images, noisy(clean, Seeds(0)("augment", 0)))


# What selection sees


def test_fitness_calibration_and_test_see_every_image_as_it_is() -> None:
    train, test = pictures(300), pictures(130, seed=1)
    made = task(train, test=test, metrics={"brightness": brightness})
    for _ in range(2):
        parts = torch.cat([images for _, (images, _) in made.parts()])
        assert torch.equal(parts, normalised(train[0]))
        calibration = torch.cat([images for images, _ in made.calibration(100)])
        assert torch.equal(calibration, normalised(train[0][: len(calibration)]))
    found = made.test(Brightness())
    assert found["brightness"] == pytest.approx(float(normalised(test[0]).mean()), abs=1e-5)


class Brightness(nn.Module):
    """Says how bright its images are."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.one * images.flatten(1).mean(dim=1, keepdim=True).expand(-1, 10)


def brightness(output: Tensor, target: Tensor) -> Tensor:
    return output.mean()


def test_it_is_a_task_that_every_engine_can_rely_on() -> None:
    check_task(task(pictures(70), test=pictures(20, seed=1)))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [esgd.Vmap(chunk=3, threads=1), esgd.Vmap(chunk=2, threads=1)])
def test_all_engines_deal_the_same_pixels(engine: Any) -> None:
    recipe = esgd.Recipe(population=3, offspring=3, generations=2, sgd_epochs=1)
    *_, expected = esgd.evolve(task(pictures(64)), recipe, seed=0, engine=esgd.Loop(threads=1))
    *_, found = esgd.evolve(task(pictures(64)), recipe, seed=0, engine=engine)
    assert found.population.fitness.tolist() == pytest.approx(expected.population.fitness.tolist(), rel=1e-3)


# Memory


class FloatStorage(TorchDispatchMode):
    """Watches for the largest storage of floating-point numbers that is made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                self.largest = max(self.largest, leaf.untyped_storage().nbytes())
        return made


def test_the_whole_set_is_never_a_float_tensor() -> None:
    images, labels = pictures(3000)
    made = task((images, labels), test=(images, labels), metrics={"brightness": brightness})
    with FloatStorage() as watch:
        everything_seen = [
            sum(len(y) for _, y in made.batches(Seeds(0), {})),
            sum(y.numel() for _, y in made.batches_together([Seeds(0), Seeds(1)], {})),
            sum(len(y) for _, (_, y) in made.parts()),
        ]
        list(made.calibration(512))
        made.test(Brightness())
    assert everything_seen == [3000, 6000, 3000]
    assert 0 < watch.largest < 4 * images.nbytes / 4


def test_the_bytes_are_kept_once() -> None:
    train = pictures(3000)
    assert train[0].nbytes < len(cloudpickle.dumps(task(train))) < 1.5 * train[0].nbytes


# Construction


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": torch.rand(4, 3, 6, 6)}, ["(4, 3, 6, 6)", "float32", "uint8", "a pair of tensors"]),
        ({"images": pictures(4)[0][:, 0]}, ["(4, 6, 6)"]),
        ({"mean": (1.0,), "std": (1.0,)}, ["(20, 3, 6, 6)", "1 means for 1 channels"]),
        ({"mean": (1.0,)}, ["mean=(1.0,)", "one of each for every channel"]),
        ({"std": (1.0, 0.0, 1.0)}, ["std=(1.0, 0.0, 1.0)", "no std is 0"]),
        ({"images": None}, ["a NoneType and a Tensor", "two tensors"]),
        ({"labels": torch.zeros(3)}, ["20 images", "(3,)", "one label for each image"]),
        ({"labels": torch.zeros(())}, ["20 images", "()"]),
        ({"images": pictures(4)[0][:0], "labels": torch.zeros(0)}, ["0 images", "at least one image"]),
    ],
)
def test_what_cannot_be_images_is_refused(changes: dict[str, Any], words: list[str]) -> None:
    images, labels = pictures(20)
    with pytest.raises(TaskError) as error:
        Pictures(**{"images": images, "labels": labels, "mean": MEAN, "std": STD, **changes})
    assert [word for word in words if word not in str(error.value)] == []


def test_the_manifest_tells_how_images_are_shown() -> None:
    described = task(pictures(20), test=pictures(5, seed=1)).describe()
    assert json.loads(json.dumps(described)) == described
    assert described["train"]["augment"] == "flip_and_crop"
    assert "augment" not in described["fitness"]
    assert described["train"]["mean"] == list(MEAN)
    assert described["train"]["sha256"] == described["fitness"]["sha256"] != described["test"]["sha256"]
