"""What one individual needs of a device's memory while it trains: counted before a run, on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from esgd.engines.computing import Computing
from esgd.engines.network import Network
from esgd.engines.sgd import checked_loss
from esgd.policies import Policy
from esgd.protocols import Setup
from esgd.randomness import Seeds, global_randomness

ROWS = 7
"""Weights, gradients, two states of an optimizer such as ADAM; and weights and states that back-off can return to."""
KEPT_ROWS = 3
"""Weights and states at the end of an SGD step, where a recipe keeps it."""
IN_FLIGHT = 2
"""Activations are counted so often: the gradient with respect to each has its size, though not all exist at a time."""


@dataclass(frozen=True, kw_only=True)
class DeviceNeed:
    """Bytes of one individual: its rows, and the activations of a batch that the backward pass needs.

    >>> DeviceNeed(rows=600, activations=200).fit(10_000)
    10
    """

    rows: int
    activations: int

    @property
    def bytes(self) -> int:
        return self.rows + IN_FLIGHT * self.activations

    def fit(self, memory: int) -> int:
        """How many individuals train at once in so many bytes."""
        return memory // self.bytes


def device_need(setup: Setup, policy: Policy, *, keeps_ends: bool = False) -> DeviceNeed:
    """Run one forward pass of a batch on the CPU, and add up what autograd saves in it.

    Kernels of a GPU may save more or less, and fragments of memory are not counted: this is an estimate.
    """
    network = Network(setup, Computing())
    network.prepare(policy.settings)
    network.enter(training=True)
    known = {parameter.untyped_storage().data_ptr() for parameter in network.module.parameters()}
    saved = dict[int, int]()

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    seeds = Seeds(0).at("device memory")
    with global_randomness(seeds.integer()):
        batch = next(iter(setup.task.batches(seeds, policy.settings)))
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = checked_loss(network.judge(setup.task.loss, batch))
    del loss  # until here, everything saved has an address of its own
    row = setup.genome.size * setup.genome.dtype.itemsize
    return DeviceNeed(rows=row * (ROWS + KEPT_ROWS * keeps_ends), activations=sum(saved.values()))
