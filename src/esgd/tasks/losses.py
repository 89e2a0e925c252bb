"""What is known of torch's own losses: which are never negative, which compare numbers, and what a constant costs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.tasks.standardisation import ScaledLoss

Loss = Callable[[Any, Any], Tensor]

SQUARED = (F.mse_loss, nn.MSELoss)
ABSOLUTE = (F.l1_loss, nn.L1Loss)
BOTH = (F.smooth_l1_loss, nn.SmoothL1Loss, F.huber_loss, nn.HuberLoss)
BINARY = (F.binary_cross_entropy, nn.BCELoss, F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss)
CLASSES = (F.cross_entropy, nn.CrossEntropyLoss)
MARGIN = (F.multi_margin_loss, nn.MultiMarginLoss, F.multilabel_margin_loss, nn.MultiLabelMarginLoss)


def never_negative(loss: Any) -> bool:
    """Whether this is a loss of torch's that is never below 0."""
    return _is(loss, *SQUARED, *ABSOLUTE, *BOTH, *BINARY, *CLASSES, *MARGIN)


def compares_numbers(loss: Any) -> bool:
    """Whether this is a loss of torch's for regression: of the difference between output and target."""
    return _is(loss.loss if isinstance(loss, ScaledLoss) else loss, *SQUARED, *ABSOLUTE, *BOTH)


def targets_of(loss: Any) -> str:
    """What a loss of torch's takes as targets and nothing else: "classes" or "numbers"; otherwise "".

    >>> targets_of(F.cross_entropy), targets_of(F.binary_cross_entropy), targets_of(F.mse_loss)
    ('classes', 'numbers', '')
    """
    return "classes" if _is(loss, *CLASSES) else "numbers" if _is(loss, *BINARY) else ""


def constant_loss(loss: Loss, targets: Tensor) -> float | None:
    """The lowest mean loss that one answer for all samples has on these targets, (n,) or (n, …).

    The answer is the mean, the median or the frequencies of the classes. None where it is not known: for losses of your
    own, and for weights, label smoothing and ignored classes.

    >>> constant_loss(F.mse_loss, torch.tensor([0.0, 2.0])), constant_loss(F.l1_loss, torch.tensor([0.0, 0.0, 3.0]))
    (1.0, 1.0)
    """
    if isinstance(loss, ScaledLoss):
        return constant_loss(loss.loss, loss.statistics.standardised(targets))
    if _is(loss, *CLASSES) and not targets.is_floating_point() and _plain(loss):
        shares = torch.bincount(targets.flatten()).double() / targets.numel() if int(targets.min()) >= 0 else None
        return None if shares is None else float(-(shares * shares.clamp_min(1e-300).log()).sum())
    if not targets.is_floating_point() or not _plain(loss):
        return None
    y = targets.double()
    if _is(loss, *SQUARED):
        return float((y - y.mean(dim=0)).square().mean())
    if _is(loss, *ABSOLUTE):
        return float((y - y.median(dim=0).values).abs().mean())
    if _is(loss, *BOTH):
        answers = (y.mean(dim=0), y.median(dim=0).values)
        return min(float(loss(answer.expand_as(y), y).mean()) for answer in answers)
    if _is(loss, *BINARY):
        p = y.mean(dim=0).clamp(1e-12, 1 - 1e-12)
        return float(F.binary_cross_entropy(p, p))
    return None


def loss_on_device(loss: Loss, device: torch.device) -> Loss:
    """The loss with its tensors on a device, such as the weights of classes. A function of your own stays as it is."""
    if isinstance(loss, ScaledLoss):
        return ScaledLoss(loss_on_device(loss.loss, device), loss.statistics.on_device(device), loss.__qualname__)
    if isinstance(loss, partial):
        moved = {
            name: value.to(device) if isinstance(value, Tensor) else value for name, value in loss.keywords.items()
        }
        return partial(loss.func, *loss.args, **moved)
    return copy.deepcopy(loss).to(device) if isinstance(loss, nn.Module) else loss


def _is(loss: Any, *known: Any) -> bool:
    plain = loss.func if isinstance(loss, partial) else loss
    return any(plain is each or type(plain) is each for each in known)


def _plain(loss: Loss) -> bool:
    """Whether every sample and class counts the same."""
    set_to = loss.keywords if isinstance(loss, partial) else vars(loss) if isinstance(loss, nn.Module) else {}
    weights = [*(set_to.get(name) for name in ("weight", "pos_weight")), *getattr(loss, "_buffers", {}).values()]
    return (
        all(each is None for each in weights)
        and not set_to.get("label_smoothing")
        and set_to.get("ignore_index", -100) == -100
    )
