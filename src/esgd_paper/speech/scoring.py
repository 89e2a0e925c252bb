"""How many words are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from esgd.errors import DataError, MissingExtraError
from esgd_paper.speech.decoder import WordLoop, decode
from esgd_paper.speech.language import Bigram
from esgd_paper.speech.viterbi import Scores

Sentences = Sequence[Sequence[str]]


def word_error_rate(references: Sentences, hypotheses: Sentences) -> float:
    """Substitutions, deletions and insertions over the number of words that were really said (by jiwer).

    A share, so 0.17 is the 17% of the paper's tables. It can exceed 1.
    """
    spoken, heard = ([" ".join(words) for words in sentences] for sentences in (references, hypotheses))
    return float(_jiwer().wer(spoken, heard))


@dataclass(frozen=True, eq=False)
class Recogniser:
    """What turns an acoustic model's posteriors for some utterances into a word error rate.

    The score of a state is scale × (log p(s|x) − prior_weight × log p(s)).
    """

    loop: WordLoop
    bigram: Bigram
    log_priors: NDArray[np.float32]
    references: tuple[tuple[str, ...], ...]
    scale: float
    prior_weight: float

    def __post_init__(self) -> None:
        _jiwer()  # missing, it is missed before anything is trained
        for number, words in enumerate(self.references):
            if not words:
                raise DataError(
                    f"utterance {number} has an empty transcript. A word error rate compares words with words; leave "
                    f"the utterance out."
                )

    def sentences(self, log_posteriors: Sequence[Scores]) -> list[tuple[str, ...]]:
        """What is recognised in each utterance, from log p(s|x): (frames, states)."""
        scores = [each - self.prior_weight * self.log_priors for each in log_posteriors]
        return decode(scores, self.loop, self.bigram, scale=self.scale)

    def word_error_rate(self, log_posteriors: Sequence[Scores]) -> float:
        return word_error_rate(self.references, self.sentences(log_posteriors))


def _jiwer() -> ModuleType:
    try:
        import jiwer
    except ImportError as error:
        raise MissingExtraError("jiwer", "speech", "A word error rate") from error
    return jiwer
