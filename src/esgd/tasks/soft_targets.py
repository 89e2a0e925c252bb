"""Label smoothing and mixup: settings that change the training loss, and nothing else.

They live in the training batches. A batch whose target is `Mixed` or `Smoothed` has a loss that is computed from the
parts of it; the batches of fitness, test and statistics have plain targets. So the loss stays a function of a network
and a batch, and an engine that trains many networks at once needs to know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd._validation import check_number
from esgd.errors import RecipeError, TaskError
from esgd.protocols import Batch, Settings
from esgd.randomness import Seeds

Loss = Callable[[Any, Any], Tensor]

SETTINGS = ("label_smoothing", "mixup")

_SMOOTHING = (
    "It is the share of the target that is spread over all classes in training, 0 ≤ label_smoothing ≤ 1. Use 0.1."
)
_MIXUP = "It is α: pairs of samples are mixed with a share from Beta(α, α) in training. Use 0.2, or 0 for none."
MOST_ALPHA = 1e6


class Mixed(NamedTuple):
    """The two targets of a batch of mixed samples, and the share of the first."""

    target: Any
    other: Any
    share: Tensor


class Smoothed(NamedTuple):
    """A target, plain or mixed, and the share of it that is spread over all classes."""

    target: Any
    spread: Tensor


def check_soft_targets(settings: Settings, loss: Loss) -> None:
    """Refuse values that mean nothing, and label smoothing for a loss that has no classes."""
    try:
        check_number("label_smoothing", settings.get("label_smoothing", 0), at_least=0, at_most=1, meaning=_SMOOTHING)
        check_number("mixup", settings.get("mixup", 0), at_least=0, at_most=MOST_ALPHA, meaning=_MIXUP)
    except RecipeError as error:
        raise TaskError(f"the setting {error}") from error
    if settings.get("label_smoothing"):
        _check_classes(loss)


def soft_batches(batches: Iterable[Batch], seeds: Seeds | Sequence[Seeds], settings: Settings) -> Iterable[Batch]:
    """The training batches of an epoch as these settings have them; `seeds` are those of the epoch.

    With several seeds, the batches are those of several individuals, stacked along a first dimension.
    """
    spread, alpha = settings.get("label_smoothing", 0), settings.get("mixup", 0)
    if spread or alpha:
        batches = map(_checked_tuple, batches)
    if alpha:
        batches = _mixed(batches, seeds, alpha)
    return _smoothed(batches, None if isinstance(seeds, Seeds) else len(seeds), spread) if spread else batches


def soft_loss(loss: Loss, output: Any, target: Any) -> Tensor:
    """The loss of an output; of mixed and smoothed targets, the sum of the losses of their parts.

    Label smoothing is linear in its share: the loss is that of no smoothing and that of nothing else, weighted.

    >>> output, target = torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([1])
    >>> ours = soft_loss(F.cross_entropy, output, Smoothed(target, torch.tensor(0.1)))
    >>> bool(torch.isclose(ours, F.cross_entropy(output, target, label_smoothing=0.1)))
    True
    """
    if isinstance(target, Smoothed):
        sharp, even = (soft_loss(_with_smoothing(loss, share), output, target.target) for share in (0.0, 1.0))
        return sharp.lerp(even, target.spread.to(sharp.dtype))
    if isinstance(target, Mixed):
        first, second = loss(output, target.target), loss(output, target.other)
        return second.lerp(first, target.share.to(first.dtype))
    return loss(output, target)


def plain_target(target: Any) -> Any:
    """The target as it was before it was smoothed or mixed."""
    return plain_target(target.target) if isinstance(target, Mixed | Smoothed) else target


def _mixed(batches: Iterable[Batch], seeds: Seeds | Sequence[Seeds], alpha: float) -> Iterator[Batch]:
    """Each sample with another one of its batch, all with one share."""
    for number, batch in enumerate(batches):
        _check_mixable(batch)
        *inputs, target = batch
        if isinstance(seeds, Seeds):
            share, order = _drawn(seeds, number, alpha, len(target))
            pairs = [(each, each.index_select(0, order.to(each.device))) for each in batch]
        else:
            drawn = [_drawn(each, number, alpha, target.shape[1]) for each in seeds]
            share, order = (torch.stack(each) for each in zip(*drawn, strict=True))
            rows = torch.arange(len(order))[:, None]
            pairs = [(each, each[rows.to(each.device), order.to(each.device)]) for each in batch]
        mixed = [
            torch.lerp(other, each, share.to(each).view(*share.shape, *[1] * (each.dim() - share.dim())))
            for each, other in pairs[: len(inputs)]
        ]
        yield (*mixed, Mixed(target, pairs[-1][1], share.to(inputs[0])))


def _drawn(seeds: Seeds, number: int, alpha: float, samples: int) -> tuple[Tensor, Tensor]:
    """The share, and the order of the other samples, of one batch."""
    share = np.random.default_rng(seeds.integer("mixup", number)).beta(alpha, alpha)
    return torch.tensor(share), torch.randperm(samples, generator=seeds("mixup order", number))


def _smoothed(batches: Iterable[Batch], rows: int | None, spread: float) -> Iterator[Batch]:
    share = torch.tensor(float(spread)) if rows is None else torch.full((rows,), float(spread))
    for batch in batches:
        yield (*batch[:-1], Smoothed(batch[-1], share))


def _checked_tuple(batch: Batch) -> Batch:
    if isinstance(batch, tuple | list):
        return batch
    raise TaskError(
        f"the settings {' and '.join(SETTINGS)} need batches of (*inputs, target), but a batch is a "
        f"{type(batch).__name__}. Leave them out, or return tuples."
    )


def _check_mixable(batch: Batch) -> None:
    for number, each in enumerate(batch):
        if not isinstance(each, Tensor):
            raise TaskError(
                f"the setting mixup needs batches of tensors, but item {number} of a batch is a {type(each).__name__}. "
                f"Leave the setting out for this task."
            )
    for number, each in enumerate(batch[:-1]):
        if not each.is_floating_point():
            raise TaskError(
                f"the setting mixup cannot mix input {number}, which is {each.dtype}: there is nothing between two "
                f"whole numbers such as words. Leave the setting out for this task, or mix after the embedding in a "
                f"network of your own."
            )


def _with_smoothing(loss: Loss, share: float) -> Loss:
    """The same cross entropy with other label smoothing."""
    if not isinstance(loss, nn.CrossEntropyLoss):
        function: Any = loss
        return partial(function, label_smoothing=share)
    told: dict[str, Any] = {name: getattr(loss, name) for name in ("weight", "ignore_index", "reduction")}
    return partial(F.cross_entropy, **told, label_smoothing=share)


def _check_classes(loss: Loss) -> None:
    """Refuse all losses but torch's cross entropy."""
    plain = loss.func if isinstance(loss, partial) else loss
    if plain is F.cross_entropy or type(loss) is nn.CrossEntropyLoss:
        return
    name = getattr(plain, "__qualname__", type(plain).__name__)
    raise TaskError(
        f"the setting label_smoothing means nothing to the loss {name}: it spreads a target over the classes of a "
        f"cross entropy. Use F.cross_entropy or nn.CrossEntropyLoss, or leave the setting out."
    )
