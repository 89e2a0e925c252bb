"""The residual networks of CIFAR-10: He's ResNet-20, and the miniature's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.randomness import Seeds, global_randomness
from esgd.studies.study import Scale
from esgd_paper.networks.residual import Subsampled, resnet8, resnet20

Network = Callable[[], nn.Module]
SCALES: list[Scale] = ["mini", "paper"]


def built(make: Network) -> nn.Module:
    with global_randomness(0):
        return make()


def random_images(samples: int) -> tuple[Tensor, Tensor]:
    generator = Seeds(0)("images")
    images = torch.randint(0, 256, (samples, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (samples,), generator=generator)


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
