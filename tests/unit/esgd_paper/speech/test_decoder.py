"""The decoder finds what was said, and the best of all sentences where that is another."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esgd_paper.speech.decoder import WordLoop, decode
from esgd_paper.speech.graph import fewest_frames, transcript_graph
from esgd_paper.speech.language import witten_bell
from esgd_paper.speech.lexicon import Lexicon
from esgd_paper.speech.viterbi import best_paths
from tests.unit.esgd_paper.speech.synthetic import LEXICON, SOUNDS, sentence, spoken

RNG = np.random.default_rng(5)
TEXTS = [sentence(RNG) for _ in range(30)]
LOOP, BIGRAM = WordLoop.of(LEXICON), witten_bell(TEXTS, LEXICON.words)
TINY = Lexicon({"AH": (("AA",),), "BE": (("BB",), ("BB", "AA"))}, ("AA", "BB", "SIL"))
TINY_LOOP = WordLoop.of(TINY)


def distances(frames: np.ndarray) -> np.ndarray:
    """How well each frame fits the sound of each state."""
    return -np.square(frames[:, None, :] - SOUNDS).sum(axis=2)


def test_what_was_said_is_found() -> None:
    rng = np.random.default_rng(11)
    said = [sentence(rng, longest=6) for _ in range(40)]
    scores = [distances(spoken(words, rng)[0]) for words in said]
    assert decode(scores, LOOP, BIGRAM, scale=1.0) == said


def test_the_language_decides_where_the_sounds_do_not() -> None:
    frames = np.zeros((9, LEXICON.states))
    likely = witten_bell([["CAB"]] * 20, LEXICON.words)
    assert decode([frames], LOOP, likely, scale=1.0) == [("CAB",)]


def test_the_scale_weighs_sounds_against_language() -> None:
    words = ("AH", "BACK")
    scores = distances(spoken(words, np.random.default_rng(2))[0])
    stubborn = witten_bell([["CAB", "CAB"]] * 1000, LEXICON.words)
    assert decode([scores], LOOP, stubborn, scale=1.0) == [words]
    assert decode([scores], LOOP, stubborn, scale=1e-6) != [words]


def best_sentence(scores: np.ndarray, bigram, scale: float) -> tuple[float, tuple[str, ...]]:
    """The best of all sentences, each with its best path, by looking at all of them."""
    number = {word: index for index, word in enumerate(TINY.words)}
    end = len(number)
    found = []
    for length in range(1, len(scores) // 3 + 1):
        for words in product(TINY.words, repeat=length):
            if fewest_frames(words, TINY) > len(scores):
                continue
            (path,) = best_paths([transcript_graph(words, TINY)], [scores])
            said = [number[word] for word in words]
            likely = sum(bigram.log[a, b] for a, b in zip([end, *said], [*said, end], strict=True))
            found.append((scale * path.score + likely, words))
    pause = np.array(TINY.silence)
    cuts = [(a, b) for a in range(1, len(scores) - 1) for b in range(a + 1, len(scores))]
    silent = max(scores[:a, pause[0]].sum() + scores[a:b, pause[1]].sum() + scores[b:, pause[2]].sum() for a, b in cuts)
    found.append((scale * silent + bigram.log[end, end], ()))
    return max(found)


@settings(max_examples=40)
@given(frames=st.integers(3, 14), seed=st.integers(0, 10**6), scale=st.sampled_from([0.3, 1.0, 3.0]))
def test_the_sentence_is_the_best_of_all_sentences(frames: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(frames, TINY.states))
    bigram = witten_bell([["AH", "BE"], ["BE"], ["BE", "BE", "AH"]], TINY.words)
    assert decode([scores], TINY_LOOP, bigram, scale=scale) == [best_sentence(scores, bigram, scale)[1]]


def test_utterances_done_together_come_out_as_if_each_was_alone() -> None:
    rng = np.random.default_rng(4)
    scores = [rng.normal(size=(int(frames), LEXICON.states)) for frames in rng.integers(3, 60, size=50)]
    together = decode(scores, LOOP, BIGRAM, scale=0.5)
    assert together == [decode([each], LOOP, BIGRAM, scale=0.5)[0] for each in scores]
    assert len({len(words) for words in together}) > 2


@pytest.mark.parametrize("frames", [0, 1, 2])
def test_an_utterance_too_short_for_any_word_is_an_empty_sentence(frames: int) -> None:
    assert decode([np.zeros((frames, LEXICON.states))], LOOP, BIGRAM, scale=1.0) == [()]


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_scores_that_are_not_finite_are_an_empty_sentence(value: float) -> None:
    assert decode([np.full((30, LEXICON.states), value)], LOOP, BIGRAM, scale=1.0) == [()]
