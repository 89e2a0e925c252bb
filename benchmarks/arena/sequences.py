"""Speech and text for the arena: AN4 and the Penn Treebank, little of each, so that a run takes seconds."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd.tasks import Supervised, error_rate
from esgd_paper.data.folders import data_folder
from esgd_paper.data.ptb import ptb
from esgd_paper.networks.fully_connected import fully_connected
from esgd_paper.networks.tied_lstm import TiedLstm
from esgd_paper.ptb import with_frequent_words
from esgd_paper.speech.corpus import Labelled, an4_corpus
from esgd_paper.speech.features import chunked, spliced
from esgd_paper.swb300 import frame_cross_entropy
from esgd_paper.tasks.language import LanguageModel
from esgd_paper.tasks.samples import some

FEATURES, CONTEXT, CHUNK = 13, 5, 21
WORDS, TOKENS, WIDTH, WINDOW = 1000, 30_000, 48, 25

Pair = tuple[Tensor, Tensor]


def frames(seed: int) -> Supervised:
    """Frames of AN4 with their neighbours. Each split has its own speakers; the seed decides which of their frames."""
    train, fitness, test = (
        some(pair, n, torch.Generator().manual_seed(seed))
        for pair, n in zip(_frames(), (4000, 2000, 4000), strict=True)
    )
    make = partial(fully_connected, FEATURES * (2 * CONTEXT + 1), (64, 64), _states(), rectified=2)
    return Supervised(
        make, F.cross_entropy, train=train, fitness=fitness, test=test, batch_size=64, metrics={"error": error_rate}
    )


def utterances(seed: int) -> Supervised:
    """Chunks of utterances of AN4 with a bidirectional LSTM."""
    train, fitness, test = (
        some(pair, n, torch.Generator().manual_seed(seed)) for pair, n in zip(_chunks(), (500, 200, 500), strict=True)
    )
    return Supervised(
        partial(Bidirectional, _states()), frame_cross_entropy, train=train, fitness=fitness, test=test, batch_size=16
    )


def text(seed: int) -> LanguageModel:
    """The Penn Treebank with its thousand most frequent words; the seed decides where the training text begins."""
    whole = with_frequent_words(ptb(data_folder(None)), words=WORDS)
    first = int(torch.randint(len(whole.train) - TOKENS, (), generator=torch.Generator().manual_seed(seed)))
    return LanguageModel(
        partial(TiedLstm, WORDS, WIDTH),
        vocabulary=WORDS,
        train=whole.train[first : first + TOKENS],
        fitness=whole.valid[:10_000],
        test=whole.test[:20_000],
        batch_size=20,
        bptt=WINDOW,
    )


class Bidirectional(nn.Module):
    """One layer of LSTMs in both directions, and the states of every frame."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, 32, bidirectional=True, batch_first=True)
        self.output = nn.Linear(64, states)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.lstm(x)[0])  # type: ignore[no-any-return]


def _states() -> int:
    return an4_corpus().lexicon.states


@lru_cache(maxsize=1)
def _frames() -> tuple[Pair, ...]:
    def pair(spoken: Labelled) -> Pair:
        x = np.concatenate([spliced(each[:, :FEATURES], CONTEXT) for each in spoken.features])
        return torch.from_numpy(x), torch.from_numpy(np.concatenate(spoken.states))

    corpus = an4_corpus()
    return tuple(map(pair, (corpus.train, corpus.held_out, corpus.test)))


@lru_cache(maxsize=1)
def _chunks() -> tuple[Pair, ...]:
    def pair(spoken: Labelled) -> Pair:
        x = np.concatenate([chunked(each[:, :FEATURES], CHUNK) for each in spoken.features])
        y = np.concatenate([chunked(each, CHUNK) for each in spoken.states])
        return torch.from_numpy(x), torch.from_numpy(y)

    corpus = an4_corpus()
    return tuple(map(pair, (corpus.train, corpus.held_out, corpus.test)))
