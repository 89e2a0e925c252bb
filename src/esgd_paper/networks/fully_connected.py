"""The fully connected network of BN50."""

from __future__ import annotations

from torch import nn


def fully_connected(inputs: int, hidden: tuple[int, ...], states: int, *, rectified: int) -> nn.Module:
    """Fully connected: ReLU in the bottom `rectified` hidden layers, sigmoid above, and a softmax that the loss has."""
    layers: list[nn.Module] = []
    for depth, width in enumerate(hidden):
        layers += [nn.Linear(inputs, width), nn.ReLU() if depth < rectified else nn.Sigmoid()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, states))
