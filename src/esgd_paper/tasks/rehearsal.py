"""What `esgd explain` measures while users have not brought a speech corpus: silence of the right shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor, nn

from esgd.studies import Rehearsal
from esgd.tasks import Supervised

HOUR = 360_000  # frames
HELD_OUT_HOURS = 5  # of BN50's 50; paper silent on SWB300
REHEARSED = 1000  # hours of data for every one that a rehearsal invents


def rehearsal(
    make_model: Callable[[], nn.Module], loss: Callable[[Tensor, Tensor], Tensor], *, hours: int, inputs: Sequence[int]
) -> Rehearsal:
    """Silence instead of the corpus. `inputs` is the shape of one sample: (features,), or (frames, features)."""
    *frames, _ = inputs

    def silence(length: int) -> tuple[Tensor, Tensor]:
        samples = length * HOUR // (prod(frames) * REHEARSED)
        return torch.zeros(samples, *inputs), torch.zeros(samples, *frames, dtype=torch.long)

    def task() -> Supervised:
        train, fitness = silence(hours), silence(HELD_OUT_HOURS)
        return Supervised(make_model, loss, train=train, fitness=fitness, batch_size=128, nonnegative=True)

    return Rehearsal(
        about=f"invented frames of the right shape, reckoned up to {hours} hours to train on and {HELD_OUT_HOURS} held "
        f"out, because there are no real ones yet",
        task=task,
        share=1 / REHEARSED,
    )
