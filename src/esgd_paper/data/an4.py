"""CMU AN4: spelled names, addresses, dates and numbers as cepstra in Sphinx files, with transcripts and a lexicon.

A feature file is a 32-bit count of numbers followed by as many 32-bit floats, 13 to the frame, big-endian at CMU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from esgd.errors import DataError, did_you_mean
from esgd_paper.data.archive import unpack
from esgd_paper.data.fetch import Remote, fetch
from esgd_paper.data.files import reading, text
from esgd_paper.data.folders import Dataset, again, obtain

CEPSTRA = 13
SILENCE = "SIL"
FOLDER, PAGE = "an4", "http://www.speech.cs.cmu.edu/databases/an4/"
LISTS = {split: (f"etc/an4_{split}.fileids", f"etc/an4_{split}.transcription") for split in ("train", "test")}
LEXICON, PHONES = "etc/an4.dic", "etc/an4.phone"

_COMMIT = "5e478f0ee6c5b060edf702acdd563948cad5545f"

ARCHIVE = Remote(
    url=f"https://github.com/cphazen/Machine-Learning-Project-ASR/archive/{_COMMIT}.tar.gz", name="an4-mirror.tar.gz"
)
"""A copy of CMU's release, at a fixed commit. Such an archive is made on demand and its bytes may differ from time to
time, so it has no SHA-256 of its own; what is inside is checked."""

CONTENT = "ebc6d3824095310808f346591a3ea813cb1c3d71d3d7f8b565671996518c181d"
"""The SHA-256 of what a right copy says, however it is written down; see `_fingerprint`."""

_INSIDE = re.compile(r"[^/]+/an4/(etc/an4[\w.]*|feat/(?:[\w-]+/)*[\w-]+\.mfc|LICENSE|README)")
_TRANSCRIPT = re.compile(r"(?P<words>.*)\((?P<name>[^()\s]+)\)")
_ENTRY = re.compile(r"(?P<word>\S+?)(?:\(\d+\))?\s+(?P<phones>\S.*)")


@dataclass(frozen=True, eq=False)
class Utterance:
    """What somebody said: `features` are float32 (frames, 13), a hundred frames a second, C0 first."""

    name: str
    speaker: str
    words: tuple[str, ...]
    features: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Speech:
    """The two splits, every word's pronunciations, and the phones, silence (`SIL`) among them."""

    train: tuple[Utterance, ...]
    test: tuple[Utterance, ...]
    lexicon: Mapping[str, tuple[tuple[str, ...], ...]]
    phones: tuple[str, ...]


def an4(folder: Path | None = None, *, download: bool = False) -> Speech:
    """The 948 training and 130 test utterances, read from `folder`, $ESGD_DATA or the user's cache."""
    return _read(obtain(AN4, folder, download=download))


def install(root: Path) -> None:
    """Download the set into a data folder."""
    archive = fetch(ARCHIVE, root)
    try:
        unpack(archive, root / FOLDER, wanted=_wanted, expected=AN4.files, fault=fault)
    finally:
        archive.unlink()  # it has no checksum, so a wrong one must not be met again


def fault(place: Path) -> str:
    """How the files differ from the publisher's, if they do."""
    got = _fingerprint(_read(place))
    return "" if got == CONTENT else f"the SHA-256 of its content is {got}, and {CONTENT} was expected"


def _wanted(member: str) -> str | None:
    inside = _INSIDE.fullmatch(member)
    return inside[1] if inside else None


def _read(place: Path) -> Speech:
    phones = tuple(phone for _, line in _lines(place / PHONES) for phone in line.split())
    if SILENCE not in phones:
        raise DataError(f"{place / PHONES} has no {SILENCE}. Silence stands between words: add it to the phones.")
    lexicon = _lexicon(place / LEXICON, phones)
    train, test = (tuple(_utterances(place, *lists, lexicon)) for lists in LISTS.values())
    return Speech(train, test, lexicon, phones)


def _lexicon(path: Path, phones: tuple[str, ...]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Words and their pronunciations, from lines such as `EIGHTH(2)  EY TH`."""
    lexicon: dict[str, tuple[tuple[str, ...], ...]] = {}
    for where, line in _lines(path):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise DataError(f"{where} is {line!r}, and a word with its phones was expected, as in 'TWO  T UW'.")
        spoken = tuple(entry["phones"].split())
        for phone in spoken:
            if phone not in phones:
                raise DataError(
                    f"{where} has the phone {phone!r}, which is not in {PHONES}. {did_you_mean(phone, phones)}"
                )
        lexicon[entry["word"]] = (*lexicon.get(entry["word"], ()), spoken)
    return lexicon


def _utterances(place: Path, ids: str, said: str, lexicon: Mapping[str, object]) -> Iterator[Utterance]:
    """The utterances of a split in the order of its fileids, which may have folders in front: `an4_clstk/fash/…`."""
    transcripts = _transcripts(place / said, lexicon)
    files: dict[str, str] = {}
    for where, file in _lines(place / ids):
        name = PurePosixPath(file).name
        if name in files:
            raise DataError(f"{where} names the utterance {name!r} a second time. Remove one of the lines.")
        if name not in transcripts:
            raise DataError(f"{where} names the utterance {name!r}, which has no transcript in {place / said}.")
        if name.count("-") < 2:
            raise DataError(f"{where} is {file!r}, and ITEM-SPEAKER-b was expected, as in 'an251-fash-b'.")
        files[name] = file
    for name in transcripts:
        if name not in files:
            raise DataError(f"{place / said} has the utterance {name!r}, which {place / ids} does not name.")
    for name, file in files.items():
        features = _features(place / "feat" / f"{file}.mfc", name)
        yield Utterance(name, name.split("-")[1], transcripts[name], features)


def _transcripts(path: Path, lexicon: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Words by utterance, from lines such as `<s> ENTER FIVE </s> (an291-ffmm-b)`."""
    transcripts: dict[str, tuple[str, ...]] = {}
    for where, line in _lines(path):
        parts = _TRANSCRIPT.fullmatch(line)
        if parts is None:
            raise DataError(
                f"{where} is {line!r}, and words and an utterance were expected, as in 'YES (an251-fash-b)'."
            )
        name, words = parts["name"], tuple(word for word in parts["words"].split() if word not in ("<s>", "</s>"))
        unknown = [word for word in words if word not in lexicon]
        if name in transcripts:
            raise DataError(f"{where} is the second transcript of {name!r}. Remove one of them.")
        if not words:
            raise DataError(f"{where}: the transcript of {name!r} is empty. There is nothing to align: leave it out.")
        if unknown:
            raise DataError(
                f"{where}: {name!r} has the word {unknown[0]!r}, which {LEXICON} does not have. Add it there."
            )
        transcripts[name] = words
    if not transcripts:
        raise DataError(f"{path} is empty, and a transcript a line was expected. {again(AN4.name)}")
    return transcripts


def _features(path: Path, name: str) -> NDArray[np.float32]:
    with reading(path):
        content = path.read_bytes()
    order = next((order for order in "><" if _promised(content, order) == len(content)), None)
    if order is None:
        raise DataError(
            f"{path} has {len(content):,} bytes, and its header promises {_promised(content, '>'):,}. It begins with "
            f"{content[:12]!r}: it is truncated, or not a Sphinx feature file. {again(AN4.name)}"
        )
    numbers = np.frombuffer(content, f"{order}f4", offset=4)
    if len(numbers) == 0 or len(numbers) % CEPSTRA:
        raise DataError(
            f"{path}: {name!r} has {len(numbers):,} numbers, which are no frames of {CEPSTRA}. AN4 has {CEPSTRA} "
            f"cepstra to the frame; these features have another dimension."
        )
    features = numbers.astype(np.float32).reshape(-1, CEPSTRA)
    wrong = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(wrong):
        raise DataError(f"{path}: {name!r} has NaN or inf in frame {wrong[0]} of {len(features)}. {again(AN4.name)}")
    return features


def _promised(content: bytes, order: str) -> int:
    """How long a file is by its own header; only the right byte order gives the right length."""
    return 4 + 4 * int(np.frombuffer(content, f"{order}i4", count=1)[0]) if len(content) >= 4 else 4


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each with where it stands."""
    lines = enumerate(text(path).split("\n"), start=1)
    return ((f"{path}:{number}", line.strip()) for number, line in lines if line.strip())


def _fingerprint(speech: Speech) -> str:
    """A SHA-256 over splits, words, pronunciations and numbers; order, spaces and byte order make no difference."""
    hashed = sha256()
    for split, utterances in (("train", speech.train), ("test", speech.test)):
        for utterance in sorted(utterances, key=lambda each: each.name):
            hashed.update(f"{split} {utterance.name} {' '.join(utterance.words)}\n".encode())
            hashed.update(utterance.features.astype("<f4").tobytes())
    for word, spoken in sorted(speech.lexicon.items()):
        hashed.update(f"{word} {sorted(spoken)}\n".encode())
    hashed.update(" ".join(sorted(speech.phones)).encode())
    return hashed.hexdigest()


AN4 = Dataset(
    name="an4",
    title="CMU AN4 (cepstra)",
    about="1,078 utterances of 84 speakers as 13 cepstra a frame, with transcripts and a lexicon; 14 MiB on disk",
    folders=(FOLDER, "."),
    files=(*LISTS["train"], *LISTS["test"], LEXICON, PHONES),
    page=PAGE,
    install=install,
    fault=fault,
    lookalikes={"an4/wav": "is the audio edition: the cepstra are read, feat/*.mfc."},
)
