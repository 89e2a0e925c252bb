"""A state for every frame, from nothing but transcripts: flat start, Gaussians, a network.

It is not recorded which frame belongs to which state. A flat start guesses that all states last equally long;
Gaussians fitted to a guess make a better one (Viterbi training), again and again; a network trained on the last makes
the labels that the experiments use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from esgd_paper.speech.features import Features
from esgd_paper.speech.gaussians import Gaussians
from esgd_paper.speech.graph import Graph
from esgd_paper.speech.lexicon import Lexicon
from esgd_paper.speech.viterbi import States, align

REALIGNMENTS = 8
PAUSE = 0.12  # of an utterance, at either end


@dataclass(frozen=True, eq=False)
class Alignment:
    """States for every frame of some utterances, and how each pass went.

    `changed` is the share of frames that a pass moved to another state, `likelihood` the mean log-likelihood of a frame
    on the new path. The latter never falls, but for the variance floor.
    """

    states: list[States]
    changed: tuple[float, ...]
    likelihood: tuple[float, ...]


def flat_start(words: Sequence[str], frames: int, lexicon: Lexicon) -> States:
    """A pause at either end, and between them the states of the first pronunciations, all equally long."""
    pause = round(PAUSE * frames)
    spoken = [state for word in words for state in lexicon.chains(word)[0]]
    middle = _evenly(spoken, frames - 2 * pause)
    return np.concatenate([_evenly(lexicon.silence, pause), middle, _evenly(lexicon.silence, pause)])


def viterbi_training(
    features: Sequence[Features],
    graphs: Sequence[Graph],
    start: Sequence[States],
    *,
    states: int,
    passes: int = REALIGNMENTS,
) -> Alignment:
    """Fit a Gaussian to every state, find the best paths, and so on."""
    frames, labels = np.concatenate(features), list(start)
    changed, likelihood = [], []
    for _ in range(passes):
        gaussians = Gaussians.fitted(frames, np.concatenate(labels), count=states)
        paths = align(features, graphs, gaussians.log_likelihoods)
        moved = sum(int((path.states != old).sum()) for path, old in zip(paths, labels, strict=True))
        changed.append(moved / len(frames))
        likelihood.append(sum(path.score for path in paths) / len(frames))
        labels = [path.states for path in paths]
    return Alignment(labels, tuple(changed), tuple(likelihood))


def _evenly(states: Sequence[int], frames: int) -> States:
    return np.asarray(states, dtype=np.int64)[np.arange(frames) * len(states) // max(frames, 1)]
