"""The network of CIFAR-10 in miniature."""

from __future__ import annotations

from torch import nn


def convolutional(*, channels: int = 3, stride: int = 1, places: int = 16) -> nn.Module:
    """Two convolutions of 12 and 24 channels, each with pooling, and ten classes; `places` are left of the pixels.

    For colours at 16×16 it has 6,802 parameters.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 12, 3, padding=1, stride=stride),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * places, 10),
    )
