"""The residual networks of CIFAR-10 (He et al., 2016)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F


def resnet20() -> nn.Module:
    """He's ResNet-20: three stages of three blocks, 16, 32 and 64 channels; 269,722 parameters."""
    return residual_network(widths=(16, 32, 64), blocks=3, shortcut=Subsampled)


def resnet8() -> nn.Module:
    """The miniature's: three stages of one block, 8, 16 and 32 channels, from 16×16 pixels on; 19,954 parameters."""
    return residual_network(widths=(8, 16, 32), blocks=1, shortcut=projection, stem_stride=2)


def residual_network(
    *, widths: tuple[int, ...], blocks: int, shortcut: Callable[[int, int], nn.Module], stem_stride: int = 1
) -> nn.Module:
    """A 3×3 convolution, stages of residual blocks, the mean over all pixels and a linear layer.

    Where a stage has more channels than the last, it has half the pixels; `shortcut` makes what leads around that step.
    """
    channels = widths[0]
    layers: list[nn.Module] = [_convolution(3, channels, stem_stride), nn.BatchNorm2d(channels), nn.ReLU()]
    for width in widths:
        for _ in range(blocks):
            layers.append(Block(channels, width, shortcut))
            channels = width
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return network


class Block(nn.Module):
    """ReLU(F(x) + x), where F is two 3×3 convolutions, each with BatchNorm."""

    def __init__(self, inputs: int, outputs: int, shortcut: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        wider = inputs != outputs
        self.residual = nn.Sequential(
            *(_convolution(inputs, outputs, 2 if wider else 1), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(_convolution(outputs, outputs, 1), nn.BatchNorm2d(outputs)),
        )
        self.shortcut = shortcut(inputs, outputs) if wider else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


class Subsampled(nn.Module):
    """He's option A: every second pixel, and zeros in the channels that are new."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.new = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.new))


def projection(inputs: int, outputs: int) -> nn.Module:
    """He's option B: a 1×1 convolution at every second pixel, with BatchNorm."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=2, bias=False), nn.BatchNorm2d(outputs))


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
