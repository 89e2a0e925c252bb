"""From scores to words: the best of all sentences, by an exact Viterbi search.

All pronunciations stand side by side, each followed by a pause that may be skipped, and are entered again and again: a
loop of words. A bigram decides how likely a word is to follow another. A pause belongs to the word before it, so the
search never forgets which word that was. Nothing is pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esgd_paper.speech.language import Bigram
from esgd_paper.speech.lexicon import Lexicon
from esgd_paper.speech.viterbi import Scores

TOGETHER = 16
"""Utterances at once, of about the same length."""

Whole = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class WordLoop:
    """One row of nodes: a pause that a sentence may begin with, then every pronunciation with a pause behind it.

    | field     | shape    | meaning                                                                              |
    |-----------|----------|--------------------------------------------------------------------------------------|
    | `states`  | (n,)     | the state of each node; a path stays, or continues to the next node                  |
    | `entries` | (p,)     | the first node of each pronunciation                                                 |
    | `entered` | (p,)     | the word it pronounces                                                               |
    | `exits`   | (e,)     | where words end, with or without a pause: word by word, the first pause last         |
    | `groups`  | (V + 2,) | where each word begins among the exits, and their end                                |
    """

    words: tuple[str, ...]
    states: Whole
    entries: Whole
    entered: Whole
    exits: Whole
    groups: Whole

    @staticmethod
    def of(lexicon: Lexicon) -> WordLoop:
        states, entries, entered, exits, groups = list(lexicon.silence), list[int](), list[int](), list[int](), [0]
        for number, word in enumerate(lexicon.words):
            for chain in lexicon.chains(word):
                entries.append(len(states))
                entered.append(number)
                states += chain
                exits.append(len(states) - 1)
                states += lexicon.silence
                exits.append(len(states) - 1)
            groups.append(len(exits))
        exits.append(len(lexicon.silence) - 1)
        groups.append(len(exits))
        return WordLoop(lexicon.words, *map(np.asarray, (states, entries, entered, exits, groups)))


def decode(scores: Sequence[Scores], loop: WordLoop, bigram: Bigram, *, scale: float) -> list[tuple[str, ...]]:
    """The best sentence for each utterance: scale × Σ scores + Σ log P(word | word before).

    `scale` makes up for what the scores pretend: that neighbouring frames are independent. Where an utterance is too
    short for any word, or its scores are not finite, the sentence is empty.
    """
    assert loop.words == bigram.words, "the loop and the language model have one vocabulary"
    order = sorted(range(len(scores)), key=lambda number: -len(scores[number]))
    said = dict[int, tuple[str, ...]]()
    for first in range(0, len(order), TOGETHER):
        some = order[first : first + TOGETHER]
        said.update(zip(some, _decoded([scores[number] for number in some], loop, bigram, scale), strict=True))
    return [said[number] for number in range(len(scores))]


def _decoded(scores: Sequence[Scores], loop: WordLoop, bigram: Bigram, scale: float) -> list[tuple[str, ...]]:
    """Utterances side by side, the longest first; those that still go on at frame t are the first `alive`."""
    log, lengths = bigram.log.astype(np.float32), [len(each) for each in scores]
    frames, size, words = max(lengths), len(scores), len(loop.words)
    emitted = np.zeros((frames, size, scores[0].shape[1]), dtype=np.float32)
    for b, each in enumerate(scores):
        emitted[: len(each), b] = scale * each
    best = np.full((size, len(loop.states)), -np.inf, dtype=np.float32)  # of the paths that end in each node
    began = np.zeros_like(best, dtype=np.int32)  # the frame in which they entered the word that they are in
    step, came = best.copy(), began.copy()
    exits = np.full((frames, size, len(loop.exits)), -np.inf, dtype=np.float32)
    begins = np.zeros_like(exits, dtype=np.int32)
    entry = np.broadcast_to(log[words, :words], (size, words))
    for t in range(frames):
        alive = sum(length > t for length in lengths)
        here, since, there, then = (each[:alive] for each in (best, began, step, came))
        there[:, 1:], then[:, 1:] = here[:, :-1], since[:, :-1]
        there[:, 0] = -np.inf if t else 0.0
        there[:, loop.entries], then[:, loop.entries] = entry[:alive, loop.entered], t
        since += (there > here) * (then - since)
        np.maximum(here, there, out=here)
        here += emitted[t, :alive].take(loop.states, axis=1)
        exits[t, :alive], begins[t, :alive] = here[:, loop.exits], since[:, loop.exits]
        entry = (_by_word(exits[t, :alive], loop)[:, :, None] + log[:, :words]).max(axis=1)
    return [
        _traced(exits[:length, b], begins[:length, b], loop, log) if length else () for b, length in enumerate(lengths)
    ]


def _traced(exits: NDArray[np.float32], begins: Whole, loop: WordLoop, log: NDArray[np.float32]) -> tuple[str, ...]:
    """Back from the end of one utterance, word by word: which word it was, and in which frame it began."""
    t, following, said = len(exits) - 1, len(loop.words), list[str]()
    ends = _by_word(exits, loop)
    while t >= 0:
        candidates = ends[t] + log[:, following]
        word = int(candidates.argmax())
        if word == len(loop.words) or not np.isfinite(candidates[word]):
            break
        among = slice(loop.groups[word], loop.groups[word + 1])
        said.append(loop.words[word])
        t, following = int(begins[t, among][exits[t, among].argmax()]) - 1, word
    return tuple(reversed(said))


def _by_word(exits: NDArray[np.float32], loop: WordLoop) -> NDArray[np.float32]:
    """The best way to end each word: (…, exits) → (…, V + 1), the beginning of the sentence last."""
    best: NDArray[np.float32] = np.maximum.reduceat(exits, loop.groups[:-1], axis=-1)
    return best
