"""CIFAR-10 (§4.2 and supplement C): a residual network, trained on augmented images and judged on clean ones.

What the paper leaves open comes from the two works that it cites: He et al., *Deep residual learning* (2016, §4.2), for
the network, and fb.resnet.torch, whose recipe the single baseline follows, for the rest.

| paper silent on       | our choice                                                                                   |
|-----------------------|----------------------------------------------------------------------------------------------|
| shortcuts             | He's option A in the ResNet-20: every second pixel, zeros for new channels, no parameters    |
| batch, weight decay   | 128 and 1e-4 on all parameters                                                               |
| order of the steps    | normalise, mirror, crop: so the frame of 4 pixels has the mean colour                        |
| BatchNorm             | statistics re-estimated on 1024 clean training images for all networks, before every fitness |
| initial population    | independent initialisations                                                                  |
| momentum              | begins afresh in every generation                                                            |

The paper's two schedules differ by an epoch: ESGD's rate drops after 80 and 121 epochs (as fb.resnet.torch's does), the
single baseline's after 81 and 122. Both are kept as printed.

The miniature has 2000 training images, another 2000 for every seed, a ResNet-8 that begins at half the resolution, and
a common warm-up. 20 epochs are short, so 0.1 is cold: our rules and the baselines begin higher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.operators import Gaussian, PerGeneration, Perturbed, RandomStart, Reestimated
from esgd.policies import Policy
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.schedules import Constant, CosineRun, Schedule, Steps, Tail
from esgd.species import Fixed, Inherited, Sgd, Uniform
from esgd.studies import Rehearsal, Scale, Study
from esgd.tasks import Supervised, error_rate
from esgd_paper.data.cifar10 import Images, cifar10
from esgd_paper.data.folders import data_folder
from esgd_paper.networks.residual import resnet8, resnet20
from esgd_paper.tasks.images import Pictures, flip_and_crop

MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of the 50,000 training images, in bytes: red, green, blue
BASE_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4
MINI_TRAIN, MINI_TEST = 2000, 4000

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "single": {"loss": 0.0176, "error": 8.34},
    "population": {"loss": 0.0151, "loss_top": (0.0151, 0.0164), "error": 8.24, "error_top": (7.90, 8.69)},
    "no_evolution": {"loss": 0.0147, "loss_top": (0.0147, 0.0166), "error": 8.49, "error_top": (7.86, 8.53)},
    "esgd": {"loss": 0.0142, "loss_top": (0.0142, 0.0159), "error": 7.52, "error_top": (7.43, 8.10)},
}
"""Table 1: the loss on the training set and the error rate on the test set in percent, of the best and the top 15."""


def study(scale: Scale, data: Path | None = None) -> Study:
    """CIFAR-10: a residual network tells ten classes of photographs; in miniature a part of the images."""
    return _mini(data) if scale == "mini" else _paper(data)


# The paper's scale


def _paper(data: Path | None) -> Study:
    pool = rates(0.9, 1.1, Steps(after=(80, 121)))
    recipe = Recipe(
        population=128,
        offspring=768,
        mates=2,
        sgd_epochs=20,
        evolution_steps=1,
        species=pool,
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=8,
        backoff=PerGeneration(),
        start=RandomStart(),
        buffers=Reestimated(samples=1024),
    )
    return Study(
        name="cifar10",
        about=(
            "CIFAR-10: 50,000 photographs of 32×32 pixels in ten classes to train on, mirrored and shifted at random; "
            "the same without augmentation as fitness, and 10,000 that selection never sees."
        ),
        task=partial(_paper_task, data),
        recipe=recipe,
        single=Fixed(policy=nesterov(BASE_RATE, Steps(after=(81, 122)))),
        population=pool,
        published=PUBLISHED,
        rehearsal=Rehearsal(
            about="as many black images of the right size, because the real ones are not here",
            task=_rehearsal_task,
            share=1.0,
        ),
    )


def _rehearsal_task() -> Supervised:
    """What `esgd explain` measures without the data."""
    train, test = (
        (torch.zeros(n, 3, 32, 32, dtype=torch.uint8), torch.zeros(n, dtype=torch.int64)) for n in (50_000, 10_000)
    )
    return _task(resnet20, train, test, batch_size=128)


def _paper_task(data: Path | None, seed: int) -> Supervised:
    """The same data for every seed."""
    images = _images(data_folder(data))
    train, test = (images.train, images.train_labels), (images.test, images.test_labels)
    return _task(resnet20, train, test, batch_size=128)


# The miniature


def _mini(data: Path | None) -> Study:
    pool = rates(0.9, 1.1, Steps(after=(10, 15)))  # of 20 epochs: where 80 and 121 are of 160
    recipe = Recipe(
        population=6,
        offspring=24,
        mates=2,
        sgd_epochs=4,
        evolution_steps=1,
        species=pool,
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=5,
        backoff=PerGeneration(),
        start=Perturbed(sigma=0.01, epochs=10, policy=nesterov(BASE_RATE, Constant())),
        buffers=Reestimated(samples=1024),
    )
    hot = rates(1, 4, Tail(), gamma=0.8)
    ours = replace(recipe, species=Inherited(species=hot, clip=(BASE_RATE, 4 * BASE_RATE)))
    return Study(
        name="cifar10",
        about=(
            f"CIFAR-10 in miniature: {MINI_TRAIN} of its 50,000 training images, others for every seed, mirrored and "
            f"shifted at random; the same without augmentation as fitness, and {MINI_TEST} of its test images."
        ),
        task=partial(_mini_task, data),
        recipe=recipe,
        ours=ours,
        single=(
            Fixed(policy=nesterov(BASE_RATE, pool.schedule)),
            *(Fixed(policy=nesterov(heat * BASE_RATE, CosineRun())) for heat in (1, 2, 4)),
        ),
        population=rates(1, 3, CosineRun()),
        published=PUBLISHED,
        thorough=True,
    )


def _mini_task(data: Path | None, seed: int) -> Supervised:
    images = _images(data_folder(data))
    some = torch.randperm(len(images.train), generator=Seeds(seed, ("cifar10",))("subset"))[:MINI_TRAIN]
    train = (images.train[some], images.train_labels[some])
    test = (images.test[:MINI_TEST], images.test_labels[:MINI_TEST])
    return _task(resnet8, train, test, batch_size=64)


# Both


def _task(
    make_model: Callable[[], nn.Module], train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], *, batch_size: int
) -> Supervised:
    """The fitness is the loss on the training set itself: CIFAR-10 has no validation set, and the paper splits none."""
    return Supervised(
        make_model,
        F.cross_entropy,
        train=Pictures(*train, mean=MEAN, std=STD, augment=flip_and_crop),
        fitness=Pictures(*train, mean=MEAN, std=STD),
        test=Pictures(*test, mean=MEAN, std=STD),
        batch_size=batch_size,
        metrics={"error": error_rate},
    )


@lru_cache(maxsize=1)
def _images(folder: Path) -> Images:
    """Read once in a process, for all seeds."""
    return cifar10(folder)


# Optimizers: "always turn on Nesterov momentum and set it to be 0.9"


def rates(low: float, high: float, schedule: Schedule, *, gamma: float = 1.0) -> Sgd:
    """ "Multiply base learning rate with a number randomly sampled between" a_k and b_k."""
    return Sgd(
        lr=Uniform(low * BASE_RATE, high * BASE_RATE),
        gamma=gamma,
        momentum=MOMENTUM,
        momentum_probability=1.0,
        nesterov_probability=1.0,
        hyper={"weight_decay": WEIGHT_DECAY},
        schedule=schedule,
    )


def nesterov(rate: float, schedule: Schedule) -> Policy:
    """The same optimizer at one learning rate."""
    hyper = {"lr": rate, "momentum": MOMENTUM, "nesterov": True, "weight_decay": WEIGHT_DECAY}
    return Policy(optimizer="sgd", hyper=hyper, schedule=schedule)
