"""What the two speech experiments share (§4.1, supplement B): words as a test, the single baseline's schedule, the
pools of optimizers, and the frames that users bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.checks import check_field
from esgd.data.frames import Frames, frames_kaldi, frames_npz
from esgd.data.places import VARIABLE, data_folder
from esgd.errors import DataError, MissingDataError, RecipeError, shown
from esgd.operators import PerEpoch
from esgd.policies import Policy, check_policy
from esgd.protocols import Draw, Species
from esgd.schedules import Constant, Schedule
from esgd.species import Adam, Inherited, Mixture, Sgd, Uniform
from esgd.speech.scoring import Recogniser
from esgd.studies.study import Rehearsal, Single
from esgd.tasks import Supervised

Range = tuple[float, float]
CONSTANT = Constant()
_FACTOR = "It multiplies the learning rate after an epoch that made the fitness worse. Use 0.5, as the paper does."
PIECE = 2048  # inputs that go through a network at once when words are recognised
HOUR = 360_000  # frames
HELD_OUT_HOURS = 5  # of BN50's 50; paper silent on SWB300
REHEARSED = 1000  # hours of data for every one that a rehearsal invents

# The word error rate


@dataclass(frozen=True, eq=False)
class Recognition:
    """Whole utterances for a network, and what recognises the words in its answer.

    The network makes (n, states) or (n, frames, states) of `inputs`. Flattened to rows of frames, `places` says which
    rows are the frames of each utterance.
    """

    inputs: Tensor
    places: tuple[NDArray[np.int64], ...]
    recogniser: Recogniser

    def word_error_rate(self, network: nn.Module) -> float:
        """The share of wrong words; the network is in eval mode, and gradients are off."""
        device = next(network.parameters()).device
        answers = [F.log_softmax(network(piece.to(device)), dim=-1).cpu() for piece in self.inputs.split(PIECE)]
        rows = torch.cat(answers).flatten(0, -2).float().numpy()
        return self.recogniser.word_error_rate([rows[place] for place in self.places])


class Spoken(Supervised):
    """`Supervised` on frames, with the word error rate among the test metrics.

    It is no mean over samples, as `metrics` are: whole utterances are decoded.
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        train: tuple[Tensor, Tensor],
        fitness: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        recognition: Recognition,
        batch_size: int,
    ) -> None:
        super().__init__(
            make_model, loss, train=train, fitness=fitness, test=test, batch_size=batch_size, nonnegative=True
        )
        self.recognition = recognition

    @torch.no_grad()
    def test(self, module: nn.Module) -> dict[str, float]:
        metrics = super().test(module)  # turns dropout and the like off
        return {**metrics, "wer": self.recognition.word_error_rate(module)}

    def describe(self) -> dict[str, Any]:
        judge = self.recognition.recogniser
        spoken = {"utterances": len(judge.references), "words": sum(map(len, judge.references)), "scale": judge.scale}
        return {**super().describe(), "wer": spoken}


# Optimizers


@dataclass(frozen=True, kw_only=True)
class Halving:
    """The single baseline's schedule: "the learning rate is annealed by 2x every time the loss on the validation set of
    the current epoch is worse than the previous epoch and meanwhile the model is backed off" (§4.1).

    For a population of one and generations of one epoch; what the model does is up to the back-off, `PerEpoch`.
    """

    policy: Policy
    factor: float = 0.5

    def __post_init__(self) -> None:
        check_policy(self.policy, with_rate=True)
        check_field(self, "factor", above=0, at_most=1, meaning=_FACTOR)

    def __call__(self, request: Draw) -> Policy:
        worse = sum(not epoch.accepted or epoch.after > epoch.before for epoch in request.past)
        annealing = self.factor**worse
        return replace(
            self.policy,
            hyper={**self.policy.hyper, "lr": self.policy.hyper["lr"] * annealing},
            annealing=annealing,
        )


@dataclass(frozen=True, kw_only=True)
class HandedDown:
    """`Inherited` for several optimizers: a learning rate that is handed down stays in the range of its own."""

    species: Species
    ranges: Mapping[str, Range]
    probability: float = 0.7
    jitter: float = 0.4

    def __post_init__(self) -> None:
        if not isinstance(self.ranges, Mapping):
            raise RecipeError(f"ranges={shown(self.ranges)} is not a mapping. Use for example {{'sgd': (0.01, 0.5)}}.")
        for range_ in (None, *self.ranges.values()):
            self._rule(range_)  # refuses what cannot be

    def _rule(self, clip: Range | None) -> Inherited:
        return Inherited(species=self.species, probability=self.probability, jitter=self.jitter, clip=clip)

    def __call__(self, request: Draw) -> Policy:
        known = request.inherited
        return self._rule(self.ranges.get(known.optimizer) if known else None)(request)


def competing(sgd: Range, adam: Range, *, gamma: float, schedule: Schedule = CONSTANT) -> Mixture:
    """The paper's two pools, in equal shares; `sgd` and `adam` are the ranges of generation 1.

    The tables anneal by γ^k with k from 1. What the miniatures' ranges were measured with is γ^(k−1), so here they are
    divided by γ.
    """
    first, second = from_first(sgd, gamma), from_first(adam, gamma)
    return Mixture(
        species=(
            Sgd(lr=Uniform(*first), gamma=gamma, schedule=schedule),
            Adam(lr=Uniform(*second), gamma=gamma, schedule=schedule),
        )
    )


def inheriting(sgd: Range, adam: Range, *, gamma: float, schedule: Schedule = CONSTANT) -> HandedDown:
    """The same pools; what was accepted is handed down with probability 0.7, its rate times exp U[−0.4, 0.4]."""
    ranges = {"sgd": from_first(sgd, gamma), "adam": from_first(adam, gamma)}
    return HandedDown(species=competing(sgd, adam, gamma=gamma, schedule=schedule), ranges=ranges)


def from_first(first: Range, gamma: float) -> Range:
    """[a_0, b_0], such that γ times it is the range of generation 1."""
    return first[0] / gamma, first[1] / gamma


def halving(rate: float) -> Single:
    """The single baseline as the paper trains it."""
    return Single(species=Halving(policy=plain(rate)), backoff=PerEpoch())


def plain(rate: float, schedule: Schedule = CONSTANT) -> Policy:
    """SGD without momentum."""
    return Policy(optimizer="sgd", hyper={"lr": rate}, schedule=schedule)


def nesterov(rate: float, schedule: Schedule) -> Policy:
    """SGD with Nesterov momentum 0.9."""
    return Policy(optimizer="sgd", hyper={"lr": rate, "momentum": 0.9, "nesterov": True}, schedule=schedule)


# What users bring


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
            f"Looked in {' and '.join(map(str, _folders(name, data)))}. The LDC sells the corpus, so nobody can "
            f"download it for you: bring {dimension} features and one of {states:,} states for every frame, as "
            f"esgd.data.frames describes, and name the folder with --data or ${VARIABLE}. --scale mini needs AN4 only."
        )
    return frames


def _folders(name: str, data: Path | None) -> Sequence[Path]:
    root = data_folder(data)
    return root / name, root


def _kaldi(folder: Path, kind: str) -> Path | None:
    return next((path for path in (folder / f"{kind}.scp", folder / f"{kind}.ark") if path.is_file()), None)


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
