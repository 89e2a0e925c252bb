"""The residual network of CIFAR-10: He's ResNet-20."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.randomness import Seeds, global_randomness
from esgd_paper.networks.residual import Subsampled, resnet20


def built() -> nn.Module:
    with global_randomness(0):
        return resnet20()


def random_images(samples: int) -> tuple[Tensor, Tensor]:
    generator = Seeds(0)("images")
    images = torch.randint(0, 256, (samples, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def test_the_resnet_20_has_the_parameters_that_he_et_al_count() -> None:
    """Their §4.2, layer by layer: 3×3 convolutions without bias, BatchNorm with two numbers a channel."""
    expected, channels = 9 * 3 * 16 + 2 * 16, 16
    for width in (16, 32, 64):
        for _ in range(3):
            expected += 9 * channels * width + 2 * width + 9 * width * width + 2 * width
            channels = width
    count = sum(p.numel() for p in built().parameters())
    assert count == expected + channels * 10 + 10
    assert round(count / 1e6, 2) == 0.27


def test_the_depth_counts_weighted_layers() -> None:
    layers = [m for m in built().modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    assert len(layers) == 20


def test_resolution_halves_where_channels_double() -> None:
    network, seen = built(), set()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda _, __, output: seen.add(tuple(output.shape[1:])))
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert seen == {(16, 32, 32), (32, 16, 16), (64, 8, 8)}


def test_option_a_takes_every_second_pixel_and_pads_new_channels_with_zeros() -> None:
    x = torch.arange(2 * 3 * 4 * 4.0).view(2, 3, 4, 4)
    around = Subsampled(3, 5)(x)
    assert around.shape == (2, 5, 2, 2)
    assert torch.equal(around[:, :3], x[:, :, ::2, ::2])
    assert not around[:, 3:].any()
    assert not list(Subsampled(3, 5).parameters())


def test_one_gradient_step_lowers_the_loss_of_its_batch() -> None:
    network, (images, labels) = built(), random_images(32)
    x = images.float() / 64 - 2
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    before = F.cross_entropy(network(x), labels)
    before.backward()
    optimizer.step()
    with torch.no_grad():
        assert F.cross_entropy(network(x), labels) < 0.99 * before
