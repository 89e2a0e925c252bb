"""A toy language that is spoken by random numbers: every state has a sound of its own, so the right answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from esgd_paper.data.an4 import Speech, Utterance
from esgd_paper.speech.lexicon import Lexicon

PHONES = ("AA", "BB", "KK", "SIL")
WORDS = {"AH": (("AA",),), "BACK": (("BB", "AA", "KK"), ("BB", "KK")), "CAB": (("KK", "AA", "BB"),)}
LEXICON = Lexicon(WORDS, PHONES)
DIMENSION = 13
SOUNDS = np.random.default_rng(7).normal(size=(LEXICON.states, DIMENSION))


def spoken(
    words: Sequence[str], rng: np.random.Generator, *, noise: float = 0.2, shortest: int = 2, longest: int = 6
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The frames of a sentence and the state of each: a pause at either end and sometimes between words."""
    chain = [*LEXICON.silence]
    for word in words:
        ways = LEXICON.chains(word)
        chain += ways[rng.integers(len(ways))]
        chain += LEXICON.silence if word is words[-1] or rng.random() < 0.3 else []
    states = np.repeat(chain, rng.integers(shortest, longest + 1, size=len(chain)))
    frames = SOUNDS[states] + noise * rng.normal(size=(len(states), DIMENSION))
    return frames.astype(np.float32), states


def sentence(rng: np.random.Generator, longest: int = 4) -> tuple[str, ...]:
    return tuple(str(word) for word in rng.choice(list(WORDS), size=rng.integers(1, longest + 1)))


def speech(*, seed: int = 0, speakers: int = 10, utterances: int = 6) -> Speech:
    """A corpus like AN4: speakers f00, f01 … to train on, and two others, m0 and m1, to test on."""
    rng = np.random.default_rng(seed)
    names = [f"f{number:02}" for number in range(speakers)]
    return Speech(
        train=tuple(_utterance(name, number, rng) for name in names for number in range(utterances)),
        test=tuple(_utterance(name, number, rng) for name in ("m0", "m1") for number in range(4)),
        lexicon=WORDS,
        phones=PHONES,
    )


def _utterance(speaker: str, number: int, rng: np.random.Generator) -> Utterance:
    words = sentence(rng)
    return Utterance(f"an{number}-{speaker}-b", speaker, words, spoken(words, rng)[0])


def write_an4(folder: Path, corpus: Speech) -> Path:
    """The corpus as CMU lays AN4 out; returns the data folder."""
    etc, feat = folder / "an4" / "etc", folder / "an4" / "feat"
    etc.mkdir(parents=True)
    feat.mkdir()
    for split, utterances in (("train", corpus.train), ("test", corpus.test)):
        (etc / f"an4_{split}.fileids").write_text("".join(f"{each.name}\n" for each in utterances))
        lines = (f"<s> {' '.join(each.words)} </s> ({each.name})\n" for each in utterances)
        (etc / f"an4_{split}.transcription").write_text("".join(lines))
        for each in utterances:
            header = np.array([each.features.size], ">i4").tobytes()
            (feat / f"{each.name}.mfc").write_bytes(header + each.features.astype(">f4").tobytes())
    entries = [
        f"{word}{'' if number == 1 else f'({number})'} {' '.join(way)}\n"
        for word, ways in corpus.lexicon.items()
        for number, way in enumerate(ways, start=1)
    ]
    (etc / "an4.dic").write_text("".join(entries))
    (etc / "an4.phone").write_text("".join(f"{phone}\n" for phone in corpus.phones))
    return folder
