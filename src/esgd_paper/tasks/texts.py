"""How a text is read: in windows for SGD, in whole streams for the fitness."""

from __future__ import annotations

from hashlib import sha256
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from esgd.errors import TaskError

PARTS = 8  # of the fitness: fine enough to stop early, coarse enough to be fast
PADDING = -100  # the target of a place behind the end of a text


class Window(NamedTuple):
    """`time` steps of every stream. `number` counts the windows of an epoch: the first one begins without a state.

    A number is no tensor, so networks cannot be batched over windows: their states would be mixed up.
    """

    tokens: Tensor  # (time, streams)
    targets: Tensor  # (time, streams): the tokens that come next
    number: int


class Streams(NamedTuple):
    """Some streams of a text from beginning to end: one part of the fitness. Padded targets are not predicted."""

    tokens: Tensor  # (time, streams)
    targets: Tensor  # (time, streams)


def in_parts(text: Tensor, streams: int) -> list[Streams]:
    """The whole text in parallel streams, a few streams in each part; the last stream may end in padding."""
    predicted = len(text) - 1
    length = ceil(predicted / min(streams, predicted))
    count = ceil(predicted / length)
    padding = (0, count * length - predicted)
    tokens = F.pad(text[:-1], padding).view(count, length)
    targets = F.pad(text[1:], padding, value=PADDING).view(count, length)
    groups = zip(tokens.tensor_split(min(PARTS, count)), targets.tensor_split(min(PARTS, count)), strict=True)
    return [Streams(some.T.contiguous(), following.T.contiguous()) for some, following in groups]


def checked_text(name: str, text: Any, vocabulary: int) -> Tensor:
    """A text as int64 tokens, or an error that says what is wrong with it and where."""
    if not isinstance(text, Tensor) or text.dim() != 1 or text.dtype.is_floating_point or text.dtype.is_complex:
        what = (
            f"of shape {tuple(text.shape)} and {text.dtype}" if isinstance(text, Tensor) else f"a {type(text).__name__}"
        )
        raise TaskError(f"{name} is {what}. A text is a one-dimensional tensor of token numbers, int64.")
    if len(text) < 2:
        raise TaskError(
            f"{name} has {len(text)} tokens. To predict a token there must be one before it: give 2 or more."
        )
    foreign = ((text < 0) | (text >= vocabulary)).nonzero().flatten()
    if len(foreign):
        raise TaskError(
            f"{name} has the token {int(text[foreign[0]])} at position {int(foreign[0])}, but vocabulary={vocabulary}: "
            f"tokens are numbered from 0 to {vocabulary - 1}. Map unknown words to a token of their own."
        )
    return text.to(torch.int64)


def fingerprint(text: Tensor) -> str:
    """What tells one text from another."""
    return sha256(text.contiguous().numpy().tobytes()).hexdigest()
