"""What is likely to be said: a bigram language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esgd.errors import DataError, did_you_mean


@dataclass(frozen=True, eq=False)
class Bigram:
    """log P(next | history) for V words: (V + 1, V + 1).

    The last row is the history at the beginning of a sentence, the last column its end.
    """

    words: tuple[str, ...]
    log: NDArray[np.float64]


def witten_bell(sentences: Sequence[Sequence[str]], words: Sequence[str]) -> Bigram:
    """Counts, smoothed by Witten and Bell's rule: a history with many different successors expects more new ones.

        P(w | h) = (c(h, w) + n(h) P(w)) / (c(h) + n(h)),    P(w) = (c(w) + n / (V + 1)) / (c + n)

    where n(h) counts the different words seen after h, and n all the different words seen. Every word has a
    probability above 0 after every history; a history that was never seen predicts P(w).

    >>> bigram = witten_bell([["YES"], ["NO"], ["NO"]], ["NO", "YES"])
    >>> np.exp(bigram.log).sum(axis=1)
    array([1., 1., 1.])
    """
    size, number = len(words), {word: index for index, word in enumerate(words)}
    counts = np.zeros((size + 1, size + 1))
    for sentence in sentences:
        for word in sentence:
            if word not in number:
                raise DataError(
                    f"the sentence {' '.join(sentence)!r} has {word!r}, which is not in the vocabulary of "
                    f"{size} words. {did_you_mean(word, words)}"
                )
        said = [number[word] for word in sentence]
        np.add.at(counts, ([size, *said], [*said, size]), 1)
    if not counts.any():
        raise DataError("there is no sentence to estimate a language model from. Give at least one.")
    totals = counts.sum(axis=0)
    new = np.count_nonzero(totals)
    unigram = (totals + new / (size + 1)) / (totals.sum() + new)
    successors = np.count_nonzero(counts, axis=1, keepdims=True)
    seen = counts.sum(axis=1, keepdims=True) + successors
    smoothed = (counts + successors * unigram) / np.maximum(seen, 1)
    return Bigram(tuple(words), np.log(np.where(seen > 0, smoothed, unigram)))
