"""What the outputs of a network are, as far as its loss tells."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional as F

from esgd.protocols import Average

_SOFTMAX: set[Any] = {F.cross_entropy, F.nll_loss, nn.CrossEntropyLoss, nn.NLLLoss}
_SIGMOID: set[Any] = {
    *(F.binary_cross_entropy_with_logits, F.multilabel_soft_margin_loss),
    *(nn.BCEWithLogitsLoss, nn.MultiLabelSoftMarginLoss),
}


def average_for(loss: Callable[..., Any]) -> Average:
    """How an ensemble averages outputs that this loss takes; those of a loss that is not torch's, as they are.

    >>> average_for(F.cross_entropy), average_for(nn.BCEWithLogitsLoss()), average_for(F.mse_loss)
    ('softmax', 'sigmoid', 'outputs')
    """
    plain = loss.func if isinstance(loss, partial) else loss
    if _among(plain, _SOFTMAX):
        return "softmax"
    return "sigmoid" if _among(plain, _SIGMOID) else "outputs"


def _among(loss: Any, known: set[Any]) -> bool:
    return any(loss is each or type(loss) is each for each in known)
