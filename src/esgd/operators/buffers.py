"""Buffers of an individual: BatchNorm statistics and other persistent state that no gradient touches.

Paper silent. Integer buffers come from the fittest mate; floating ones by the rule. Whether statistics are then
re-estimated is *one rule for parents and offspring alike, before every fitness*: re-estimating offspring only
makes the two incomparable: the next SGD step then looks worse and is backed off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from esgd._validation import check_field

_SAMPLES = (
    "BatchNorm statistics are re-estimated on this number of training samples before every fitness, and a single one "
    "gives no variance. Use 1024, or the rule Averaged() for no re-estimation."
)


@dataclass(frozen=True, kw_only=True)
class Reestimated:
    """Averaged over the mates; then BatchNorm statistics are estimated on `samples` fixed training samples."""

    samples: int = 1024

    def __post_init__(self) -> None:
        check_field(self, "samples", at_least=2, whole=True, meaning=_SAMPLES)

    def __call__(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return Averaged()(buffers)


@dataclass(frozen=True, kw_only=True)
class Averaged:
    """Floating buffers averaged over the mates, as the parameters are."""

    @property
    def samples(self) -> int:
        return 0

    def __call__(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: mates.mean(dim=0) if mates.dtype.is_floating_point else mates[0] for name, mates in buffers.items()
        }


@dataclass(frozen=True, kw_only=True)
class FromFittest:
    """All buffers from the fittest mate."""

    @property
    def samples(self) -> int:
        return 0

    def __call__(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: mates[0] for name, mates in buffers.items()}
