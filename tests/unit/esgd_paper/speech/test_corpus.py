"""A corpus is labelled with models that know the training speakers only; on real speech, words are recognised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esgd.errors import DataError
from esgd_paper.data.an4 import Speech, Utterance, an4
from esgd_paper.speech.corpus import Corpus, Labelled, an4_corpus, held_out_speakers, labelled
from tests.real_data import half_of_an4
from tests.unit.esgd_paper.speech.synthetic import LEXICON, speech, write_an4

HELD_OUT = ("f03", "f07")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return labelled(speech(), held_out=HELD_OUT)


def test_every_frame_of_every_speaker_has_a_state(corpus: Corpus) -> None:
    given = speech()
    for found, utterances in (
        (corpus.train, [each for each in given.train if each.speaker not in HELD_OUT]),
        (corpus.held_out, [each for each in given.train if each.speaker in HELD_OUT]),
        (corpus.test, given.test),
    ):
        assert found.names == tuple(each.name for each in utterances)
        assert found.words == tuple(each.words for each in utterances)
        for features, states, each in zip(found.features, found.states, utterances, strict=True):
            assert features.shape == (len(each.features), 39)
            assert states.shape == (len(each.features),)
            assert ((states >= 0) & (states < LEXICON.states)).all()


def test_features_are_scaled_by_the_training_speakers(corpus: Corpus) -> None:
    frames = np.concatenate(corpus.train.features)
    assert frames.mean(axis=0) == pytest.approx(np.zeros(39), abs=1e-4)
    assert frames.std(axis=0) == pytest.approx(np.ones(39), abs=1e-3)


def altered(utterance: Utterance) -> Utterance:
    """The same person saying something else, in another voice."""
    return replace(utterance, words=("CAB",), features=(3 * utterance.features[::-1] ** 2).astype(np.float32))


def same(one: Labelled, other: Labelled) -> bool:
    pairs = [*zip(one.features + one.states, other.features + other.states, strict=True)]
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("whose", ["held-out speakers", "test speakers"])
def test_nothing_is_learnt_from(whose: str, corpus: Corpus) -> None:
    """Whatever they say, features, labels, priors and language model of the training speakers stay as they are."""
    given = speech()
    if whose == "test speakers":
        given = replace(given, test=tuple(map(altered, given.test)))
    else:
        train = tuple(altered(each) if each.speaker in HELD_OUT else each for each in given.train)
        given = replace(given, train=train)
    found = labelled(given, held_out=HELD_OUT)
    assert same(found.train, corpus.train)
    assert np.array_equal(found.bigram.log, corpus.bigram.log)
    assert np.array_equal(found.log_priors, corpus.log_priors)
    untouched = ("held_out", "test")[whose == "held-out speakers"]
    assert same(getattr(found, untouched), getattr(corpus, untouched))
    assert not same(found.held_out, corpus.held_out) or not same(found.test, corpus.test)


def test_states_that_are_known_are_recognised_as_words(corpus: Corpus) -> None:
    """Posteriors that are sure of the aligned states give the transcripts back."""
    answers = [np.where(np.arange(LEXICON.states) == states[:, None], 0.0, -9.0) for states in corpus.test.states]
    assert corpus.recogniser(corpus.test, scale=1.0).word_error_rate(answers) < 0.05


def test_every_ninth_speaker_is_held_out() -> None:
    given = speech(speakers=24, utterances=1)
    assert held_out_speakers(given) == ("f04", "f13", "f22")


@pytest.mark.slow
def test_a_folder_is_aligned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_an4(tmp_path / "one", speech())
    before = sorted(folder.rglob("*"))
    first = an4_corpus(folder)
    assert an4_corpus(folder) is first
    assert sorted(folder.rglob("*")) == before
    monkeypatch.setenv("ESGD_DATA", str(folder))
    named = an4_corpus()
    assert an4_corpus() is named
    monkeypatch.setenv("ESGD_DATA", str(write_an4(tmp_path / "two", speech(seed=1))))
    assert an4_corpus() is not named


def with_one(**changes: Any) -> Speech:
    given = speech()
    return replace(given, train=(replace(given.train[0], **changes), *given.train[1:]))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (with_one(words=()), "utterance 'an0-f00-b' has an empty transcript"),
        (with_one(words=("AH", "BAK")), r"utterance 'an0-f00-b' \(AH BAK\): the lexicon has no 'BAK'.*mean 'BACK'"),
        (with_one(words=("CAB",) * 99), "takes at least 891: three for every phone"),
        (replace(speech(), test=speech().train[:3]), "speakers f00 are in the training set and in the test set"),
        (replace(speech(), test=()), "and 0 to test on"),
    ],
    ids=["empty", "unknown word", "too short", "known speaker", "no test"],
)
def test_what_cannot_be_aligned_is_named(given: Speech, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        labelled(given, held_out=HELD_OUT)


def test_somebody_must_be_held_out() -> None:
    with pytest.raises(DataError, match="0 of held-out speakers"):
        labelled(speech(), held_out=())


@pytest.mark.slow
def test_an4_is_aligned() -> None:
    """The real corpus, by what is known of it: 66, 8 and 10 speakers, 102 states, and a quarter of it silence."""
    folder = half_of_an4()
    given, found = an4(folder), an4_corpus(folder)
    assert len({each.speaker for each in given.train}) == 74
    assert len(held_out_speakers(given)) == 8
    assert len(found.train.names) + len(found.held_out.names) == 948 / 2
    assert len(found.test.names) == 130
    assert sum(map(len, found.test.words)) == 773
    assert found.lexicon.states == 102
    silence = np.array(found.lexicon.silence)
    for split in (found.train, found.held_out, found.test):
        assert 0.15 < np.isin(np.concatenate(split.states), silence).mean() < 0.4
    assert len(np.unique(np.concatenate(found.train.states))) == 102


def test_one_name_is_no_collection_of_speakers() -> None:
    with pytest.raises(DataError, match=r"held_out='mmxg' is one name.*Write held_out=\('mmxg',\)"):
        labelled(speech(), held_out="mmxg")
