"""Data on the device of an engine, so that no step waits for a batch to be copied there."""

from __future__ import annotations

from dataclasses import replace

import torch

from esgd.engines.computing import Computing
from esgd.protocols import MovesData, Setup

SHARE = 4
"""The part of the free memory that data may take is 1 / SHARE; networks and activations need the rest."""


def with_data_on_device(setup: Setup, computing: Computing) -> Setup:
    """The setup whose task has its data on the engine's device; as it is where they are on the CPU or do not fit.

    Batches have the same values either way, so results do not depend on how much memory happened to be free.
    """
    device = torch.device(computing.device)
    if device.type == "cpu" or not isinstance(setup.task, MovesData):
        return setup
    return replace(setup, task=setup.task.on_device(device, free_bytes(device) // SHARE))


def free_bytes(device: torch.device) -> int:
    """Memory of a device that nothing uses yet; none where torch cannot tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return 0
