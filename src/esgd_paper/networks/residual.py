"""The residual network of CIFAR-10 (He et al., 2016)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def resnet20() -> nn.Module:
    """He's ResNet-20: a 3×3 convolution, three stages of three blocks with 16, 32 and 64 channels, the mean over all
    pixels and a linear layer; 269,722 parameters."""
    widths = (16, 32, 64)
    channels = widths[0]
    layers: list[nn.Module] = [_convolution(3, channels, 1), nn.BatchNorm2d(channels), nn.ReLU()]
    for width in widths:
        for _ in range(3):
            layers.append(Block(channels, width))
            channels = width
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return network


class Block(nn.Module):
    """ReLU(F(x) + x), where F is two 3×3 convolutions, each with BatchNorm; with more channels, half the pixels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        wider = inputs != outputs
        self.residual = nn.Sequential(
            *(_convolution(inputs, outputs, 2 if wider else 1), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(_convolution(outputs, outputs, 1), nn.BatchNorm2d(outputs)),
        )
        self.shortcut = Subsampled(inputs, outputs) if wider else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


class Subsampled(nn.Module):
    """He's option A: every second pixel, and zeros in the channels that are new."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.new = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.new))


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
