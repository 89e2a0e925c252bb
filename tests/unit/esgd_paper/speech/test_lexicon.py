"""Pronunciations as chains of states, and what cannot be one."""

from __future__ import annotations

import pytest

from esgd.errors import DataError
from esgd_paper.speech.lexicon import Lexicon
from tests.unit.esgd_paper.speech.synthetic import LEXICON, PHONES, WORDS


def test_every_phone_has_three_states_of_its_own() -> None:
    assert LEXICON.states == 12
    assert LEXICON.chains("BACK") == [[3, 4, 5, 0, 1, 2, 6, 7, 8], [3, 4, 5, 6, 7, 8]]
    assert LEXICON.silence == [9, 10, 11]


def test_words_have_one_order() -> None:
    assert Lexicon(dict(reversed(WORDS.items())), PHONES).words == ("AH", "BACK", "CAB")


def test_a_word_without_an_entry_is_named_with_what_may_have_been_meant() -> None:
    with pytest.raises(DataError, match="no 'BACKS', so it cannot be pronounced. Did you mean 'BACK'?"):
        LEXICON.chains("BACKS")


def test_a_phone_that_is_not_listed_is_named_with_its_word() -> None:
    with pytest.raises(DataError, match="the phone 'XX' in 'BOX'"):
        Lexicon({"BOX": (("BB", "XX"),)}, PHONES)


def test_a_pause_needs_a_phone() -> None:
    with pytest.raises(DataError, match="have no 'SIL'"):
        Lexicon(WORDS, PHONES[:-1])


@pytest.mark.parametrize("ways", [(), ((),)])
def test_a_word_needs_a_pronunciation(ways: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(DataError, match="'HUSH' without a pronunciation"):
        Lexicon({"HUSH": ways}, PHONES)
