"""Word error rates that can be checked by hand."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from esgd.errors import DataError, MissingExtraError
from esgd_paper.speech.decoder import WordLoop
from esgd_paper.speech.language import witten_bell
from esgd_paper.speech.scoring import Recogniser, word_error_rate
from tests.unit.esgd_paper.speech.synthetic import LEXICON

SAID = [("ENTER", "FIVE", "NINE"), ("YES",)]


@pytest.mark.parametrize(
    ("heard", "errors"),
    [
        ([("ENTER", "FIVE", "NINE"), ("YES",)], 0),
        ([("ENTER", "NINE"), ("YES",)], 1),
        ([("ENTER", "FIVE", "FIVE"), ("YES",)], 1),
        ([("ENTER", "FIVE", "NINE"), ("OH", "YES")], 1),
        ([("FIVE", "ENTER"), ()], 3),
        ([(), ()], 4),
    ],
    ids=["right", "deletion", "substitution", "insertion", "several", "nothing"],
)
def test_errors_are_counted_over_all_words_said(heard: list[tuple[str, ...]], errors: int) -> None:
    assert word_error_rate(SAID, heard) == pytest.approx(errors / 4)


def test_more_can_be_wrong_than_was_said() -> None:
    assert word_error_rate([("YES",)], [("NO", "NO", "NO")]) == pytest.approx(3.0)


PRIORS = np.where(np.isin(np.arange(LEXICON.states), LEXICON.chains("AH")), -0.5, -9.0).astype(np.float32)


def recogniser(references: tuple[tuple[str, ...], ...], prior_weight: float = 1.0) -> Recogniser:
    """A language in which CAB is what people say, and a speaker whose frames are mostly those of AH."""
    bigram = witten_bell([["CAB"]] * 9 + [["AH"]], LEXICON.words)
    return Recogniser(WordLoop.of(LEXICON), bigram, PRIORS, references, 1.0, prior_weight)


def posteriors(states: list[int]) -> np.ndarray:
    """A network that is sure, for three frames each."""
    found = np.full((3 * len(states), LEXICON.states), -20.0)
    found[np.arange(len(found)), np.repeat(states, 3)] = 0.0
    return found


def test_posteriors_become_words_and_words_an_error_rate() -> None:
    judge = recogniser((("CAB",), ("AH",)))
    answers = [posteriors(LEXICON.chains("CAB")[0])] * 2
    assert judge.sentences(answers) == [("CAB",), ("CAB",)]
    assert judge.word_error_rate(answers) == pytest.approx(0.5)


def test_priors_are_divided_out() -> None:
    """A network that says no more than the priors has heard nothing: the language decides."""
    assert recogniser((("AH",),)).sentences([np.tile(PRIORS, (9, 1))]) == [("CAB",)]


def test_priors_count_by_their_weight() -> None:
    """Without them, what the network says most often is heard, whatever the language expects."""
    heard = [recogniser((("AH",),), weight).sentences([np.tile(PRIORS, (9, 1))]) for weight in (0.0, 0.9, 1.0)]
    assert heard == [[("AH",)], [("AH",)], [("CAB",)]]


def test_an_empty_transcript_cannot_be_scored() -> None:
    with pytest.raises(DataError, match="utterance 1 has an empty transcript"):
        recogniser((("AH",), ()))


def test_a_missing_scorer_is_missed_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(MissingExtraError, match=r"needs jiwer.*esgd\[speech\]"):
        recogniser((("AH",),))
