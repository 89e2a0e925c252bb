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

The miniature continues from a network that has converged, as the Penn Treebank experiment does: in the minutes that a
miniature has, a CNN from scratch is far from convergence, where one long run is best. It has 2,000 training images
without augmentation, at half their resolution, and a network of two convolutions without BatchNorm. The fitness is the
loss on other images: that on the training images would select for over-fitting. Images for the test are training images
of CIFAR-10, too, and every seed has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from esgd.operators import Gaussian, Never, PerGeneration, Perturbed, RandomStart, Reestimated
from esgd.policies import Policy
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.report.arms import BASELINE
from esgd.schedules import CosineRun, Schedule, Steps
from esgd.species import Fixed, Sgd, Uniform
from esgd.studies import Rehearsal, Scale, Study
from esgd.tasks import Supervised, error_rate
from esgd_paper.data.cifar10 import Images, cifar10
from esgd_paper.data.folders import data_folder
from esgd_paper.first_run import first_run
from esgd_paper.networks.convolutional import convolutional
from esgd_paper.networks.residual import resnet20
from esgd_paper.tasks.images import Augmentation, Pictures, flip_and_crop

MEAN, STD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of the 50,000 training images, in bytes: red, green, blue
BASE_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4
MINI_SIZES = (2000, 1000, 4000)  # to train on, for the fitness, to test on
MINI_RATE, MINI_DECAY = 0.03, 5e-3
Split = tuple[Tensor, Tensor]

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
    return _task(train, test)


def _paper_task(data: Path | None, seed: int) -> Supervised:
    """The same data for every seed."""
    images = _images(data_folder(data))
    train, test = (images.train, images.train_labels), (images.test, images.test_labels)
    return _task(train, test)


# The miniature


def _mini(data: Path | None) -> Study:
    pool = mini_rates(0.9, 1.1, Steps(after=(6, 9)))  # of 12 epochs: where 80 and 121 are of 160
    recipe = Recipe(
        population=6,
        offspring=24,
        mates=2,
        sgd_epochs=4,
        evolution_steps=1,
        species=pool,
        mutation=Gaussian(sigma=0.01),
        elites=0.6,
        generations=3,
        backoff=PerGeneration(),
        start=Perturbed(network=BASELINE, sigma=0.0),
    )
    return Study(
        name="cifar10",
        about=(
            f"CIFAR-10 in miniature: {MINI_SIZES[0]:,} of its training images, at half their resolution, to continue "
            f"to train a network that has converged on them; {MINI_SIZES[1]:,} others as fitness, and "
            f"{MINI_SIZES[2]:,} that selection never sees. Every seed has other images."
        ),
        task=partial(_mini_task, data),
        recipe=recipe,
        single=(
            *(Fixed(policy=mini_nesterov(factor, CosineRun())) for factor in (0.03, 0.1, 1 / 3, 1)),
            Fixed(policy=mini_nesterov(1, pool.schedule)),
        ),
        alone=mini_nesterov(0.03, CosineRun()),
        population=mini_rates(1 / 3, 2, CosineRun()),
        baseline=first_run(Fixed(policy=mini_nesterov(1, CosineRun())), generations=15, sgd_epochs=4, backoff=Never()),
        published=PUBLISHED,
    )


def _mini_task(data: Path | None, seed: int) -> Supervised:
    images = _images(data_folder(data))
    some = torch.randperm(len(images.train), generator=Seeds(seed, ("cifar10",))("subset"))[: sum(MINI_SIZES)]
    train, fitness, test = ((_halved(images.train[part]), images.train_labels[part]) for part in some.split(MINI_SIZES))
    return Supervised(
        convolutional,
        F.cross_entropy,
        train=_pictures(train),
        fitness=_pictures(fitness),
        test=_pictures(test),
        batch_size=64,
        metrics={"error": error_rate},
    )


def _halved(images: Tensor) -> Tensor:
    """The mean of every four pixels."""
    return F.avg_pool2d(images.float(), 2).round().to(torch.uint8)


def mini_rates(low: float, high: float, schedule: Schedule) -> Sgd:
    """The pool of the miniature; its rate and weight decay are what the converged network was trained with."""
    return rates(low, high, schedule, base=MINI_RATE, decay=MINI_DECAY)


def mini_nesterov(factor: float, schedule: Schedule) -> Policy:
    """The optimizer of the miniature at one learning rate, a multiple of that."""
    return nesterov(factor * MINI_RATE, schedule, decay=MINI_DECAY)


# Both


def _task(train: Split, test: Split) -> Supervised:
    """The fitness is the loss on the training set itself: CIFAR-10 has no validation set, and the paper splits none."""
    return Supervised(
        resnet20,
        F.cross_entropy,
        train=_pictures(train, augment=flip_and_crop),
        fitness=_pictures(train),
        test=_pictures(test),
        batch_size=128,
        metrics={"error": error_rate},
    )


def _pictures(split: Split, augment: Augmentation | None = None) -> Pictures:
    return Pictures(*split, mean=MEAN, std=STD, augment=augment)


@lru_cache(maxsize=1)
def _images(folder: Path) -> Images:
    """Read once in a process, for all seeds."""
    return cifar10(folder)


# Optimizers: "always turn on Nesterov momentum and set it to be 0.9"


def rates(low: float, high: float, schedule: Schedule, *, base: float = BASE_RATE, decay: float = WEIGHT_DECAY) -> Sgd:
    """ "Multiply base learning rate with a number randomly sampled between" a_k and b_k."""
    return Sgd(
        lr=Uniform(low * base, high * base),
        gamma=1.0,
        momentum=MOMENTUM,
        momentum_probability=1.0,
        nesterov_probability=1.0,
        hyper={"weight_decay": decay},
        schedule=schedule,
    )


def nesterov(rate: float, schedule: Schedule, *, decay: float = WEIGHT_DECAY) -> Policy:
    """The same optimizer at one learning rate."""
    hyper = {"lr": rate, "momentum": MOMENTUM, "nesterov": True, "weight_decay": decay}
    return Policy(optimizer="sgd", hyper=hyper, schedule=schedule)
