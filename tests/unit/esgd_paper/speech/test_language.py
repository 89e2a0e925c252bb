"""Witten and Bell's bigram: probabilities that sum to one, and the numbers one gets by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esgd.errors import DataError
from esgd_paper.speech.language import witten_bell

WORDS = ("A", "B", "C")
BEGIN = END = 3


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=8))
def test_probabilities_sum_to_one_after_every_history(sentences: list[list[str]]) -> None:
    bigram = witten_bell(sentences, WORDS)
    assert np.exp(bigram.log).sum(axis=1) == pytest.approx(np.ones(4))
    assert np.isfinite(bigram.log).all()


def test_the_numbers_are_those_one_gets_by_hand() -> None:
    """ "A B" and "A A": after A come B, A and the end, once each; A is seen 3 times, B once, the end twice."""
    found = np.exp(witten_bell([["A", "B"], ["A", "A"]], WORDS).log)
    unigram = {"A": (3 + 3 / 4) / 9, "B": (1 + 3 / 4) / 9, "C": (3 / 4) / 9, "end": (2 + 3 / 4) / 9}
    assert found[0] == pytest.approx(
        [(1 + 3 * unigram[word]) / 6 for word in ("A", "B")]
        + [
            3 * unigram["C"] / 6,
            (1 + 3 * unigram["end"]) / 6,
        ]
    )
    assert found[BEGIN] == pytest.approx([(2 + unigram["A"]) / 3, *(unigram[word] / 3 for word in ("B", "C", "end"))])
    assert found[1, END] == pytest.approx((1 + unigram["end"]) / 2)


def test_a_history_that_was_never_seen_predicts_how_often_words_are_said() -> None:
    found = np.exp(witten_bell([["A", "B"], ["A", "A"]], WORDS).log)
    assert found[2] == pytest.approx([(3 + 0.75) / 9, (1 + 0.75) / 9, 0.75 / 9, (2 + 0.75) / 9])


def test_a_word_outside_the_vocabulary_is_named_with_its_sentence() -> None:
    with pytest.raises(DataError, match="the sentence 'A D' has 'D', which is not in the vocabulary of 3 words"):
        witten_bell([["A"], ["A", "D"]], WORDS)


def test_nothing_cannot_be_estimated_from() -> None:
    with pytest.raises(DataError, match="no sentence"):
        witten_bell([], WORDS)
