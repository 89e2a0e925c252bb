"""Mikolov's Penn Treebank: the real text, and what is said of other text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from esgd.errors import DataError
from esgd_paper.data import Text, ptb
from tests.real_data import real_data


def lay(folder: Path, **texts: str | bytes) -> Path:
    known = {"train": " the cat N \n a cat \n", "valid": " a cat \n", "test": " the N \n", **texts}
    for split, content in known.items():
        (folder / f"ptb.{split}.txt").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.fixture(scope="module")
def treebank() -> Text:
    return ptb(real_data("ptb"))


def test_the_counts_are_the_published_ones(treebank: Text) -> None:
    assert (len(treebank.train), len(treebank.valid), len(treebank.test)) == (929_589, 73_760, 82_430)
    assert len(treebank.vocabulary) == len(set(treebank.vocabulary)) == 10_000
    assert {"<unk>", "<eos>", "N"} <= set(treebank.vocabulary)


def test_the_numbers_spell_the_text(treebank: Text) -> None:
    for split in ("train", "valid", "test"):
        words = [treebank.vocabulary[number] for number in getattr(treebank, split).tolist()]
        lines = (real_data("ptb") / "ptb" / f"ptb.{split}.txt").read_text().splitlines()
        assert " ".join(words) == " ".join(f"{line.strip()} <eos>" for line in lines)


def test_a_line_is_a_sentence_and_words_are_numbered_by_first_appearance(tmp_path: Path) -> None:
    text = ptb(lay(tmp_path))
    assert text.vocabulary == ("the", "cat", "N", "<eos>", "a")
    assert text.train.tolist() == [0, 1, 2, 3, 4, 1, 3]
    assert text.valid.tolist() == [4, 1, 3]
    assert text.test.tolist() == [0, 2, 3]
    assert text.train.dtype == torch.int64


def test_windows_line_ends_make_no_difference(tmp_path: Path) -> None:
    assert ptb(lay(tmp_path, valid=" a cat \r\n the \r\n")).valid.tolist() == [4, 1, 3, 0, 3]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_word_never_seen_is_named_with_file_and_line(tmp_path: Path, split: str) -> None:
    lay(tmp_path, **{split: " the cat \n the dog \n"})
    with pytest.raises(DataError, match=f"ptb.{split}.txt:2 has the word 'dog', which is nowhere in .*ptb.train.txt"):
        ptb(tmp_path)


def test_a_text_that_breaks_off_is_named_with_its_last_words(tmp_path: Path) -> None:
    lay(tmp_path, train=" the cat N \n a cat \n a c")
    with pytest.raises(
        DataError, match="ptb.train.txt breaks off after .* a c', without a line end: it is probably truncated"
    ):
        ptb(tmp_path)


@pytest.mark.parametrize("content", ["", " \n\n"], ids=["nothing", "blank"])
def test_an_empty_text_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match="ptb.valid.txt is empty"):
        ptb(lay(tmp_path, valid=content))


@pytest.mark.parametrize(
    ("content", "found"),
    [(b" a \n\x1f\x8b\x08\xff", "the byte 0x8b"), (b" a \n cat\0 \n", "a zero byte")],
    ids=["gzip", "zeros"],
)
def test_what_is_no_text_is_named_with_the_line(tmp_path: Path, content: bytes, found: str) -> None:
    with pytest.raises(DataError, match=f"ptb.test.txt:2 holds {found}, and text .UTF-8. was expected"):
        ptb(lay(tmp_path, test=content))


def test_a_text_with_sentence_ends_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ptb.train.txt:1 has <eos>"):
        ptb(lay(tmp_path, train=" the cat <eos> \n"))
