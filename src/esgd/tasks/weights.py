"""What the mean of a loss divides by. Of torch's cross entropies that is the weight of the targets, not their number.

The mean over a set is Σ w·ℓ / Σ w. Means over its batches, averaged by size, are something else, and depend on how the
set is cut. So each batch is weighted by its Σ w, where w is the weight of a target's class, or 0 for `ignore_index`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

IGNORED = -100
"""torch's default for `ignore_index`."""


@dataclass(frozen=True, eq=False)
class TargetWeights:
    """The class weights and the ignored class of a cross entropy that is a mean."""

    weight: Tensor | None = None
    ignore_index: int = IGNORED

    def total(self, target: Tensor) -> Tensor:
        """Σ w in samples, as a float64 scalar. Of n targets without weights, none of them ignored, exactly n.

        A sample with several targets, such as the pixels of an image, counts as their mean. There is no branch that
        depends on values: engines record this.
        """
        counted = target != self.ignore_index
        if self.weight is None:
            weights = counted.double()
        else:
            each = self.weight.detach().to(target.device).double()
            weights = each[target.where(counted, torch.zeros_like(target)).long()] * counted
        return weights.sum() / (target.numel() // max(1, len(target)))


def target_weights(loss: Any) -> TargetWeights | None:
    """Those of one of torch's losses, itself or as a `partial`; None for a loss that divides by the number of samples,
    or that does not tell."""
    settings = _settings(loss)
    if settings is None or settings.get("reduction", "mean") != "mean":
        return None
    return TargetWeights(settings.get("weight"), settings.get("ignore_index", IGNORED))


def ignored_class(loss: Any) -> int | None:
    """The `ignore_index` of one of torch's losses of class numbers; None for another loss.

    >>> ignored_class(F.cross_entropy), ignored_class(nn.NLLLoss(ignore_index=0)), ignored_class(F.mse_loss)
    (-100, 0, None)
    """
    settings = _settings(loss)
    return None if settings is None else int(settings.get("ignore_index", IGNORED))


def _settings(loss: Any) -> Mapping[str, Any] | None:
    """What one of torch's losses of class numbers is set to; None for another loss."""
    if isinstance(loss, partial):
        plain, settings = loss.func, loss.keywords
    else:
        plain, settings = loss, getattr(loss, "__dict__", {}) | getattr(loss, "_buffers", {})
    function = plain in (F.cross_entropy, F.nll_loss) if not isinstance(plain, nn.Module) else False
    module = getattr(type(plain), "forward", None) in (nn.CrossEntropyLoss.forward, nn.NLLLoss.forward)
    return settings if function or module else None
