"""CMU AN4: the real cepstra, and sets with something wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from esgd.errors import DataError
from esgd_paper.data import Speech, an4
from tests.real_data import real_data

LISTS = {
    "an4_train.fileids": "an4_clstk/fash/an1-fash-b\nan4_clstk/mxyz/cen2-mxyz-b\n",
    "an4_train.transcription": "<s> YES </s> (an1-fash-b)\n<s> TWO  A </s> (cen2-mxyz-b)\n",
    "an4_test.fileids": "an4test_clstk/fcaw/an3-fcaw-b\n",
    "an4_test.transcription": "YES TWO (an3-fcaw-b)\n",
    "an4.dic": "A\tAH\nA(2)\tEY\nTWO  T UW\nYES  Y EH S\n",
    "an4.phone": "AH\nEH\nEY\nS\nSIL\nT\nUW\nY\n",
}
FRAMES = {"an4_clstk/fash/an1-fash-b": 4, "an4_clstk/mxyz/cen2-mxyz-b": 6, "an4test_clstk/fcaw/an3-fcaw-b": 5}


def cepstra(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).standard_normal((frames, 13)).astype(np.float32)


def sphinx(features: np.ndarray, order: str = ">") -> bytes:
    return np.array([features.size], f"{order}i4").tobytes() + features.astype(f"{order}f4").tobytes()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three utterances in CMU's layout."""
    (tmp_path / "an4" / "etc").mkdir(parents=True)
    for name, content in LISTS.items():
        (tmp_path / "an4" / "etc" / name).write_text(content)
    for file, frames in FRAMES.items():
        path = tmp_path / "an4" / "feat" / f"{file}.mfc"
        path.parent.mkdir(parents=True)
        path.write_bytes(sphinx(cepstra(frames)))
    return tmp_path


@pytest.fixture
def edit(small: Path) -> Callable[[str, str, str], None]:
    """Replace something in one of the lists, which must be there."""

    def change(name: str, old: str, new: str) -> None:
        path = small / "an4" / "etc" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


@pytest.fixture(scope="module")
def speech() -> Speech:
    return an4(real_data("an4"))


def test_the_counts_are_the_published_ones(speech: Speech) -> None:
    assert (len(speech.train), len(speech.test)) == (948, 130)
    assert sum(len(each.words) for each in speech.train) == 5_442
    assert sum(len(each.words) for each in speech.test) == 773
    assert sum(len(each.features) for each in (*speech.train, *speech.test)) == 289_252
    assert len({word for each in (*speech.train, *speech.test) for word in each.words}) == 101
    assert sum(map(len, speech.lexicon.values())) == 130
    assert len(speech.phones) == 34


def test_no_test_speaker_is_heard_in_training(speech: Speech) -> None:
    train, test = ({each.speaker for each in split} for split in (speech.train, speech.test))
    assert (len(train), len(test), len(train & test)) == (74, 10, 0)


def test_the_cepstra_are_the_published_ones(speech: Speech) -> None:
    """The digest was taken of CMU's numbers without this reader, utterances in the order of their names."""
    everything = sorted((*speech.train, *speech.test), key=lambda each: each.name)
    numbers = np.concatenate([each.features for each in everything]).astype("<f4")
    assert sha256(numbers.tobytes()).hexdigest() == "8f4445ec890c321335f22a0c190fd21d11ed95dd8e80826645d628f31ffb1f63"


def test_utterances_come_in_the_order_of_the_list_with_speaker_and_words(small: Path) -> None:
    speech = an4(small)
    assert [each.name for each in speech.train] == ["an1-fash-b", "cen2-mxyz-b"]
    assert [each.speaker for each in (*speech.train, *speech.test)] == ["fash", "mxyz", "fcaw"]
    assert [each.words for each in (*speech.train, *speech.test)] == [("YES",), ("TWO", "A"), ("YES", "TWO")]
    assert np.array_equal(speech.train[1].features, cepstra(6))
    assert speech.train[1].features.dtype == np.float32
    assert speech.train[1].features.flags.c_contiguous


def test_a_word_has_all_its_pronunciations(small: Path) -> None:
    speech = an4(small)
    assert speech.lexicon == {"A": (("AH",), ("EY",)), "TWO": (("T", "UW"),), "YES": (("Y", "EH", "S"),)}
    assert speech.phones == ("AH", "EH", "EY", "S", "SIL", "T", "UW", "Y")


def test_the_header_tells_the_byte_order(small: Path) -> None:
    (small / "an4" / "feat" / "an4_clstk/fash/an1-fash-b.mfc").write_bytes(sphinx(cepstra(4), "<"))
    assert np.array_equal(an4(small).train[0].features, cepstra(4))


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("an4_train.transcription", "YES", "", "an4_train.transcription:1: the transcript of 'an1-fash-b' is empty"),
        (
            "an4_test.transcription",
            "TWO",
            "TOO",
            "an4_test.transcription:1: 'an3-fcaw-b' has the word 'TOO', which etc/an4.dic",
        ),
        (
            "an4_train.transcription",
            "(an1-fash-b)",
            "(an1-fush-b)",
            "an4_train.fileids:1 names the utterance 'an1-fash-b', which",
        ),
        (
            "an4_train.fileids",
            "an4_clstk/mxyz/cen2-mxyz-b\n",
            "",
            "has the utterance 'cen2-mxyz-b', which .*fileids does not",
        ),
        (
            "an4_train.transcription",
            "(an1-fash-b)",
            "an1-fash-b",
            "an4_train.transcription:1 is '<s> YES </s> an1-fash-b'",
        ),
        (
            "an4_train.transcription",
            "(cen2-mxyz-b)",
            "(an1-fash-b)",
            "transcription:2 is the second transcript of 'an1-fash-b'",
        ),
        (
            "an4_train.fileids",
            "an4_clstk/mxyz/cen2-mxyz-b",
            "an1-fash-b",
            "fileids:2 names the utterance 'an1-fash-b' a second time",
        ),
        ("an4.dic", "TWO  T UW", "TWO", "an4.dic:3 is 'TWO', and a word with its phones was expected"),
        ("an4.dic", "T UW", "T OO", "an4.dic:3 has the phone 'OO', which is not in etc/an4.phone"),
        ("an4.phone", "SIL\n", "", "an4.phone has no SIL"),
        ("an4_test.transcription", "YES TWO (an3-fcaw-b)\n", "", "an4_test.transcription is empty"),
    ],
)
def test_a_list_with_a_fault_is_named_with_line_and_utterance(
    small: Path, edit: Callable[[str, str, str], None], name: str, old: str, new: str, said: str
) -> None:
    edit(name, old, new)
    with pytest.raises(DataError, match=said):
        an4(small)


def test_an_utterance_without_a_speaker_is_named(small: Path, edit: Callable[[str, str, str], None]) -> None:
    edit("an4_train.fileids", "an4_clstk/fash/an1-fash-b", "an1")
    edit("an4_train.transcription", "(an1-fash-b)", "(an1)")
    with pytest.raises(DataError, match="fileids:1 is 'an1', and ITEM-SPEAKER-b was expected"):
        an4(small)


def test_an_utterance_without_its_file_is_named(small: Path) -> None:
    (small / "an4" / "feat" / "an4_clstk/fash/an1-fash-b.mfc").unlink()
    with pytest.raises(DataError, match="feat/an4_clstk/fash/an1-fash-b.mfc cannot be read: No such file"):
        an4(small)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (sphinx(cepstra(4))[:-1], "has 211 bytes, and its header promises 212.*truncated"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt ", "has 16 bytes, and its header promises .*begins with b'RIFF"),
        (b"", "has 0 bytes, and its header promises 4"),
        (sphinx(np.zeros((4, 12), np.float32)), "'an1-fash-b' has 48 numbers, which are no frames of 13"),
        (sphinx(np.zeros((0, 13), np.float32)), "'an1-fash-b' has 0 numbers"),
        (
            sphinx(np.where(np.arange(4)[:, None] == 2, np.nan, cepstra(4))),
            "'an1-fash-b' has NaN or inf in frame 2 of 4",
        ),
    ],
    ids=["truncated", "a sound file", "nothing", "twelve cepstra", "no frames", "not a number"],
)
def test_a_feature_file_with_a_fault_is_named(small: Path, content: bytes, said: str) -> None:
    path = small / "an4" / "feat" / "an4_clstk/fash/an1-fash-b.mfc"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said) as wrong:
        an4(small)
    assert str(path) in str(wrong.value)
