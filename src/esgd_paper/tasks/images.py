"""Images that stay bytes in memory: normalised when they are dealt out, and for SGD shifted and mirrored at random.

Fitness, BatchNorm statistics and test see every image as it is, so a fitness stays a fixed function. What SGD sees is
addressed like everything random here: by individual, epoch and batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from esgd.errors import TaskError
from esgd.protocols import Batch
from esgd.randomness import Seeds
from esgd.tasks import Tensors

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

    | field         | meaning                                                                                         |
    |---------------|-------------------------------------------------------------------------------------------------|
    | `images`      | uint8 (n, channels, height, width); the bytes are kept once, however many splits share them      |
    | `labels`      | (n,)                                                                                            |
    | `mean`, `std` | of each channel, in bytes from 0 to 255; every image is normalised with them                    |
    | `augment`     | a function of (normalised images, generator) for epochs; fixed parts are never augmented        |

    >>> x, y = torch.zeros(20, 1, 8, 8, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64)
    >>> _, (images, labels) = next(Pictures(x, y, mean=(100.0,), std=(50.0,)).parts(batch_size=10))
    >>> images.unique()
    tensor([-2.])
    """

    images: Tensor
    labels: Tensor
    mean: tuple[float, ...] = field(kw_only=True)
    std: tuple[float, ...] = field(kw_only=True)
    augment: Augmentation | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_look(self.mean, self.std)
        _check_images(self.images, self.labels, channels=len(self.mean))

    @property
    def stored(self) -> Tensors:
        return Tensors((self.images, self.labels))

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


def _check_look(mean: Sequence[float], std: Sequence[float]) -> None:
    if len(mean) != len(std) or not all(each > 0 for each in std):
        raise TaskError(
            f"mean={tuple(mean)} and std={tuple(std)} cannot normalise images: there is one of each for every channel, "
            f"and no std is 0. Take them from the training images, in bytes from 0 to 255."
        )


def _check_images(images: Any, labels: Any, *, channels: int) -> None:
    if not all(isinstance(each, Tensor) for each in (images, labels)):
        raise TaskError(f"images and labels are {_kind(images)} and {_kind(labels)}. Give them as two tensors.")
    if images.dtype is not torch.uint8 or images.dim() != 4 or images.shape[1] != channels:
        raise TaskError(
            f"the images are of shape {tuple(images.shape)} and {images.dtype}. They are kept as bytes and normalised "
            f"batch by batch, with {channels} means for {channels} channels: give uint8 (n, {channels}, height, "
            f"width). Images that are floats already go into Supervised as a pair of tensors."
        )
    if len(images) == 0 or tuple(labels.shape[:1]) != (len(images),):
        raise TaskError(
            f"there are {len(images)} images, and the labels are of shape {tuple(labels.shape)}. Give one label for "
            f"each image, and at least one image."
        )


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
