"""The frames that users bring for BN50 and SWB300: found in a folder, and dealt out as samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from esgd.errors import DataError, MissingDataError
from esgd_paper.data.folders import VARIABLE, data_folder
from esgd_paper.data.frames import Frames, frames_kaldi, frames_npz


@dataclass(frozen=True, eq=False)
class Joined:
    """Utterances one after another, so that they are in memory, and in a pool's shared memory, once."""

    features: NDArray[np.float32]
    states: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @staticmethod
    def of(frames: Frames) -> Joined:
        offsets = np.cumsum([0, *map(len, frames.states)])
        return Joined(np.concatenate(frames.features), np.concatenate(frames.states), offsets)


class Spliced(Dataset[tuple[Tensor, int]]):
    """A frame between its neighbours, and its state. Spliced beforehand, they would take nine times the memory."""

    def __init__(self, frames: Frames, context: int) -> None:
        self.frames, self.around = Joined.of(frames), np.arange(-context, context + 1)

    def __len__(self) -> int:
        return len(self.frames.states)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        features, offsets = self.frames.features, self.frames.offsets
        utterance = int(np.searchsorted(offsets, index, side="right"))
        rows = np.clip(index + self.around, offsets[utterance - 1], offsets[utterance] - 1)
        return torch.from_numpy(features[rows].reshape(-1)), int(self.frames.states[index])


class Chunks(Dataset[tuple[Tensor, Tensor]]):
    """Chunks of `length` frames with the states of all of them, cut when they are asked for."""

    def __init__(self, frames: Frames, length: int) -> None:
        self.frames, self.length = Joined.of(frames), length
        bounds = pairwise(self.frames.offsets)
        self.starts = np.concatenate([np.arange(first, last - length + 1, length) for first, last in bounds])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        rows = slice(self.starts[index], self.starts[index] + self.length)
        features, states = self.frames.features[rows], self.frames.states[rows]
        return torch.from_numpy(features.copy()), torch.from_numpy(states.copy())


def brought(name: str, split: str, data: Path | None, *, dimension: int, states: int) -> Frames | None:
    """A split of the user's frames, or None: SPLIT.npz, or Kaldi's SPLIT/feats.scp and SPLIT/pdf.scp (or .ark).

    They are looked for in the folder `name` of the data folder, and in the data folder itself.
    """
    for folder in _folders(name, data):
        if (folder / f"{split}.npz").is_file():
            return frames_npz(folder / f"{split}.npz", dimension=dimension, states=states)
        features, alignments = (_kaldi(folder / split, kind) for kind in ("feats", "pdf"))
        if features and alignments:
            return frames_kaldi(features, alignments, dimension=dimension, states=states)
        if features or alignments:
            absent = folder / split / ("pdf.scp" if features else "feats.scp")
            raise DataError(
                f"{features or alignments} is there, but no {absent}. Every frame needs features and a state. Add it."
            )
    return None


def needed(name: str, split: str, data: Path | None, *, dimension: int, states: int) -> Frames:
    """As `brought`, for a split that there must be."""
    frames = brought(name, split, data, dimension=dimension, states=states)
    if frames is None:
        raise MissingDataError(
            f"{name} has no {split} frames: there is neither {split}.npz nor {split}/feats.scp with {split}/pdf.scp. "
            f"Looked in {' and '.join(map(str, _folders(name, data)))}. The LDC sells the corpus, so no one else can "
            f"download it for you: bring {dimension} features and one of {states:,} states for every frame, as "
            f"esgd_paper.data.frames describes, and name the folder with --data or ${VARIABLE}. --scale mini needs AN4 "
            f"only."
        )
    return frames


def _folders(name: str, data: Path | None) -> Sequence[Path]:
    root = data_folder(data)
    return root / name, root


def _kaldi(folder: Path, kind: str) -> Path | None:
    return next((path for path in (folder / f"{kind}.scp", folder / f"{kind}.ark") if path.is_file()), None)
