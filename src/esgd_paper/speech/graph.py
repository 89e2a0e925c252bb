"""All the ways in which a transcript can be said: every pronunciation of every word, with or without pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from esgd_paper.speech.lexicon import Lexicon

NOWHERE = -1


@dataclass(frozen=True, eq=False)
class Graph:
    """States in the order in which they can be passed through. A path stays in a node or continues along an arc.

    | field     | shape  | meaning                                                                              |
    |-----------|--------|--------------------------------------------------------------------------------------|
    | `states`  | (n,)   | the state of each node                                                               |
    | `before`  | (n, p) | the nodes that a node is entered from, itself first; −1 where there are fewer than p |
    | `initial` | (i,)   | nodes where a path may begin                                                         |
    | `final`   | (f,)   | nodes where it may end                                                               |
    """

    states: NDArray[np.int64]
    before: NDArray[np.int64]
    initial: NDArray[np.int64]
    final: NDArray[np.int64]


def transcript_graph(words: Sequence[str], lexicon: Lexicon) -> Graph:
    """pause? word pause? word … pause?, all pronunciations of a word side by side."""
    drawing = _Drawing()
    ends = [NOWHERE]
    for word in words:
        entrances = [*ends, drawing.chain(lexicon.silence, ends)]
        ends = [drawing.chain(states, entrances) for states in lexicon.chains(word)]
    return drawing.graph([*ends, drawing.chain(lexicon.silence, ends)])


def fewest_frames(words: Sequence[str], lexicon: Lexicon) -> int:
    """The length of the shortest path: one frame for every state of the shortest pronunciations."""
    return sum(min(map(len, lexicon.chains(word))) for word in words)


@dataclass(eq=False)
class _Drawing:
    """A graph that grows chain by chain."""

    states: list[int] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    initial: list[int] = field(default_factory=list)

    def chain(self, states: Sequence[int], entrances: Sequence[int]) -> int:
        """Add a chain that is entered from the given nodes, or at the very beginning; returns its last node."""
        for number, state in enumerate(states):
            node = len(self.states)
            sources = [node - 1] if number else [each for each in entrances if each != NOWHERE]
            if not number and NOWHERE in entrances:
                self.initial.append(node)
            self.states.append(state)
            self.before.append([node, *sources])
        return len(self.states) - 1

    def graph(self, final: Sequence[int]) -> Graph:
        widest = max(map(len, self.before))
        padded = [sources + [NOWHERE] * (widest - len(sources)) for sources in self.before]
        return Graph(*(np.asarray(each, dtype=np.int64) for each in (self.states, padded, self.initial, final)))
