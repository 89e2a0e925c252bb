"""The network of CIFAR-10 in miniature."""

from __future__ import annotations

import torch

from esgd_paper.networks.convolutional import convolutional


def test_it_has_6802_parameters_and_ten_classes() -> None:
    network = convolutional()
    assert sum(parameter.numel() for parameter in network.parameters()) == 6_802
    assert network(torch.zeros(2, 3, 16, 16)).shape == (2, 10)
