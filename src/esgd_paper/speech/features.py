"""What cepstra go through before anything is modelled on them. Frames are rows: (frames, d)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Features = NDArray[np.float32]

SMALLEST_DEVIATION = 1e-5
"""A coefficient that never changes is left at 0 instead of being blown up."""


def normalised(features: Features) -> Features:
    """One utterance with mean 0 and variance 1 in every coefficient: this takes out microphone and loudness."""
    return Scaling.of([features])(features)


def with_deltas(features: Features) -> Features:
    """The features, their slopes Δ and the slopes of those ΔΔ: (frames, d) → (frames, 3 d)."""
    first = slopes(features)
    return np.concatenate([features, first, slopes(first)], axis=1)


def slopes(features: Features, window: int = 2) -> Features:
    """The slope of a straight line through the 2 × `window` + 1 frames around each; the first and last are repeated.

    >>> slopes(np.array([[0.0], [3.0], [6.0], [9.0], [12.0]], dtype=np.float32))[2]
    array([3.], dtype=float32)
    """
    around = sliding_window_view(_extended(features, window), 2 * window + 1, axis=0)  # (frames, d, window)
    steps = np.arange(-window, window + 1, dtype=np.float32)
    return np.asarray(around @ (steps / (steps**2).sum()), dtype=np.float32)


def spliced(features: Features, context: int) -> Features:
    """Every frame between its `context` neighbours on either side, the earliest first: (frames, (2 context + 1) d)."""
    around = sliding_window_view(_extended(features, context), 2 * context + 1, axis=0)
    return np.ascontiguousarray(around.transpose(0, 2, 1)).reshape(len(features), -1)


def chunked(features: NDArray[np.generic], length: int) -> NDArray[np.generic]:
    """Chunks of `length` frames that do not overlap; what is left over at the end is dropped.

    So every chunk is full, and a mean over chunks is the mean over their frames.

    >>> chunked(np.arange(7), 3)
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    whole = len(features) // length
    return features[: whole * length].reshape(whole, length, *features.shape[1:])


def covering(frames: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Chunks that leave no frame out: which frames each one has, (chunks, length), and where each frame is found.

    What is left over at the end is covered by a chunk of the last `length` frames, of which only the new ones count.
    An utterance shorter than a chunk repeats its last frame. The places are rows of the flattened chunks, (frames,).

    >>> rows, places = covering(5, 3)
    >>> rows.tolist(), places.tolist()
    ([[0, 1, 2], [2, 3, 4]], [0, 1, 2, 4, 5])
    """
    starts = list(range(0, frames - length + 1, length))
    whole = len(starts) * length
    places = np.arange(frames)
    if whole < frames:
        starts.append(max(0, frames - length))
        places[whole:] += (len(starts) - 1) * length - starts[-1]
    rows = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(length)
    return np.minimum(rows, frames - 1), places


@dataclass(frozen=True, eq=False)
class Scaling:
    """The shift and the scale that give some utterances mean 0 and variance 1; others are treated alike."""

    mean: Features
    deviation: Features

    @staticmethod
    def of(utterances: Sequence[Features]) -> Scaling:
        """Both in float64, over all frames: the speakers a model is trained on, never those it is judged on."""
        frames = sum(map(len, utterances))
        mean = sum(each.sum(axis=0, dtype=np.float64) for each in utterances) / frames
        variance = sum(np.square(each - mean).sum(axis=0) for each in utterances) / frames
        deviation = np.maximum(np.sqrt(variance), SMALLEST_DEVIATION)
        return Scaling(mean.astype(np.float32), deviation.astype(np.float32))

    def __call__(self, features: Features) -> Features:
        return (features - self.mean) / self.deviation


def _extended(features: Features, frames: int) -> Features:
    """The first and the last frame repeated on either side."""
    return np.pad(features, ((frames, frames), (0, 0)), mode="edge")
