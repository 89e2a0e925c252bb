"""The network that makes the last alignment. It is trained on the training speakers and used for all speakers.

Torch works on one thread here, so that the labels do not depend on how many the caller uses: a run that is resumed must
find the data it began with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.randomness import Seeds, global_randomness
from esgd_paper.speech.features import Features, spliced
from esgd_paper.speech.viterbi import Scores, States

CONTEXT = 4  # frames on either side
HIDDEN = (192, 192, 128)
EPOCHS, BATCH, RATE = 3, 256, 1e-3  # of ADAM


def network_scores(
    features: Sequence[Features], states: Sequence[States], *, count: int, seeds: Seeds
) -> Callable[[Features], Scores]:
    """Train on utterances whose states are known; returns the function that scores the frames of any utterance."""
    network = trained(features, states, count=count, seeds=seeds)
    priors = log_priors(states, count=count)

    def score(utterance: Features) -> Scores:
        with one_thread(), torch.no_grad():
            posteriors: NDArray[np.float32] = F.log_softmax(network(_inputs([utterance])), dim=1).numpy()
        return posteriors - priors

    return score


def trained(features: Sequence[Features], states: Sequence[States], *, count: int, seeds: Seeds) -> nn.Module:
    """A network with three hidden layers of ReLU, trained by ADAM on the cross-entropy of the states."""
    x, y = _inputs(features), torch.from_numpy(np.concatenate(states))
    with one_thread(), global_randomness(seeds.integer("init")):
        network = _network(x.shape[1], count)
        optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
        for epoch in range(EPOCHS):
            for chosen in torch.randperm(len(x), generator=seeds("order", epoch)).split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(network(x[chosen]), y[chosen]).backward()
                optimizer.step()
    return network.eval()


def log_priors(states: Sequence[States], *, count: int) -> NDArray[np.float32]:
    """How often each state occurs, in logarithms; one that never does counts as seen once.

    By Bayes' rule log p(x|s) = log p(s|x) − log p(s), but for a constant of the frame.
    """
    seen = np.maximum(np.bincount(np.concatenate(states), minlength=count), 1)
    priors: NDArray[np.float32] = np.log(seen / seen.sum()).astype(np.float32)
    return priors


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread; the caller's number comes back after."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _network(inputs: int, outputs: int) -> nn.Module:
    widths = (inputs, *HIDDEN)
    hidden = [(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, HIDDEN, strict=False)]
    return nn.Sequential(*(layer for pair in hidden for layer in pair), nn.Linear(HIDDEN[-1], outputs))


def _inputs(features: Sequence[Features]) -> Tensor:
    return torch.from_numpy(np.concatenate([spliced(each, CONTEXT) for each in features]))
