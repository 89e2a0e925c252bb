"""Images that stay bytes in memory: normalised when they are dealt out, and for SGD shifted and mirrored at random.

Fitness, BatchNorm statistics and test see every image as it is, so a fitness stays a fixed function. What SGD sees is
addressed like everything random here: by individual, epoch and batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from esgd.errors import TaskError
from esgd.protocols import Batch, Settings
from esgd.randomness import Seeds
from esgd.tasks.sources import Source, Tensors
from esgd.tasks.supervised import Loss, Supervised

PADDING = 4  # pixels on each side, as He et al. (2016, §4.2) pad 32 × 32 images

Augmentation = Callable[[Tensor, Generator], Tensor]
"""Normalised images (n, channels, height, width) → as many of the same shape, at random."""


def flip_and_crop(images: Tensor, generator: Generator) -> Tensor:
    """Mirror each image or not, then cut it out of a frame of zeros, up to 4 pixels off centre.

    Zero is the mean colour, because the images come normalised.

    >>> flip_and_crop(torch.ones(2, 3, 32, 32), torch.Generator()).shape
    torch.Size([2, 3, 32, 32])
    """
    n, channels, height, width = images.shape
    mirrored = (torch.rand(n, 1, generator=generator) < 0.5).to(images.device)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, n, 1), generator=generator).to(images.device)
    framed = F.pad(images, [PADDING] * 4)
    across = framed.shape[3]
    rows = top + torch.arange(height, device=images.device)  # of each image, in its frame
    columns = left + torch.arange(width, device=images.device)
    columns = torch.where(mirrored, across - 1 - columns, columns)
    pixels = (rows[:, :, None] * across + columns[:, None, :]).view(n, 1, -1).expand(-1, channels, -1)
    return framed.flatten(2).gather(2, pixels).view_as(images)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images as bytes, and their labels: a source whose batches are (x − mean) / std, channel by channel.

    Its epochs are augmented; its fixed parts never are.
    """

    stored: Tensors
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: Augmentation | None = None

    @property
    def samples(self) -> int:
        return self.stored.samples

    def epoch(self, seeds: Seeds, batch_size: int) -> Iterator[Batch]:
        for number, (images, labels) in enumerate(self.stored.epoch(seeds, batch_size)):
            yield self._varied(self._normalised(images), seeds, number), labels

    def epochs(self, seeds: Sequence[Seeds], batch_size: int) -> Iterator[Batch]:
        """The epochs of several individuals at once: each batch is theirs, stacked."""
        for number, (images, labels) in enumerate(self.stored.epochs(seeds, batch_size)):
            rows = zip(self._normalised(images), seeds, strict=True)
            yield torch.stack([self._varied(row, each, number) for row, each in rows]), labels

    def parts(self, batch_size: int, order: Sequence[int] | None = None) -> Iterator[tuple[int, Batch]]:
        for part, (images, labels) in self.stored.parts(batch_size, order):
            yield part, (self._normalised(images), labels)

    def describe(self) -> dict[str, Any]:
        look = {"kind": "images", "mean": list(self.mean), "std": list(self.std)}
        augment = {} if self.augment is None else {"augment": getattr(self.augment, "__qualname__", repr(self.augment))}
        return {**self.stored.describe(), **look, **augment}

    def data(self) -> tuple[Tensor, ...]:
        return self.stored.data()

    def _varied(self, images: Tensor, seeds: Seeds, number: int) -> Tensor:
        return images if self.augment is None else self.augment(images, seeds("augment", number))

    def _normalised(self, images: Tensor) -> Tensor:
        mean, std = (torch.tensor(each, device=images.device).view(-1, 1, 1) for each in (self.mean, self.std))
        return images.float().sub_(mean).div_(std)


class Augmented(Supervised):
    """`Supervised` on images: train, fitness and test are (images, labels), the images uint8 (n, channels, h, w).

    | argument      | meaning                                                                                         |
    |---------------|-------------------------------------------------------------------------------------------------|
    | `mean`, `std` | of each channel, in bytes from 0 to 255; every image is normalised with them                    |
    | `augment`     | a function of (normalised images, generator) for training batches; None for none                |

    The other arguments are those of `Supervised`. The bytes are kept once, however many splits are made of them.

    >>> x, y = torch.zeros(20, 1, 8, 8, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64)
    >>> grey = {"mean": (100.0,), "std": (50.0,)}
    >>> task = Augmented(lambda: nn.Flatten(), F.cross_entropy, train=(x, y), fitness=(x, y), **grey)
    >>> next(iter(task.parts()))[1][0].unique()
    tensor([-2.])
    """

    _train: Pictures

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        loss: Loss,
        *,
        train: tuple[Tensor, Tensor],
        fitness: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor] | None = None,
        mean: Sequence[float],
        std: Sequence[float],
        augment: Augmentation | None = flip_and_crop,
        batch_size: int = 32,
        metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
    ) -> None:
        _check_look(mean, std)
        for name, split in (("train", train), ("fitness", fitness), ("test", test)):
            _check_images(name, split, channels=len(mean))
        super().__init__(
            make_model, loss, train=train, fitness=fitness, test=test, batch_size=batch_size, metrics=metrics
        )

        def pictures(split: Source | None, augment: Augmentation | None = None) -> Pictures:
            assert isinstance(split, Tensors), "a pair of tensors was checked for"
            return Pictures(split, tuple(mean), tuple(std), augment)

        self._train = self._calibration = pictures(self._train, augment)
        self._fitness = pictures(self._fitness)
        self._test = None if self._test is None else pictures(self._test)

    def batches_together(self, seeds: Sequence[Seeds], settings: Settings) -> Iterator[Batch]:
        return self._train.epochs(seeds, self._batch_size(settings))


def _check_look(mean: Sequence[float], std: Sequence[float]) -> None:
    if len(mean) != len(std) or not all(each > 0 for each in std):
        raise TaskError(
            f"mean={tuple(mean)} and std={tuple(std)} cannot normalise images: there is one of each for every channel, "
            f"and no std is 0. Take them from the training images, in bytes from 0 to 255."
        )


def _check_images(name: str, split: Any, *, channels: int) -> None:
    if split is None and name == "test":
        return
    if not isinstance(split, tuple) or len(split) != 2 or not all(isinstance(each, Tensor) for each in split):
        raise TaskError(f"{name} is {type(split).__name__}, not (images, labels). Give it as two tensors.")
    images = split[0]
    if images.dtype is not torch.uint8 or images.dim() != 4 or images.shape[1] != channels:
        raise TaskError(
            f"{name} has images of shape {tuple(images.shape)} and {images.dtype}. They are kept as bytes and "
            f"normalised batch by batch, with {channels} means for {channels} channels: give uint8 (n, {channels}, "
            f"height, width), or use Supervised for images that are floats already."
        )
