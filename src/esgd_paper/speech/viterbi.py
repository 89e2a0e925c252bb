"""The best path through a graph: which state each frame of an utterance belongs to.

Many utterances are done at once. Their graphs stand side by side as one large graph without arcs between them, the
longest utterance first, so that those still going on at frame t are always a beginning of the row of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esgd_paper.speech.features import Features
from esgd_paper.speech.graph import NOWHERE, Graph

Scores = NDArray[np.floating]
"""How well each frame fits each state, in logarithms: (frames, states)."""

States = NDArray[np.int64]

TOGETHER = 128
"""Utterances at once: enough for NumPy to be fast, few enough for the caches."""


@dataclass(frozen=True, eq=False)
class Path:
    """The states of the best path, one for each frame, and the sum of their scores (−inf: there is no path)."""

    states: States
    score: float


def align(features: Sequence[Features], graphs: Sequence[Graph], score: Callable[[Features], Scores]) -> list[Path]:
    """The best path of every utterance; no more than a few utterances' scores are ever in memory."""
    order = sorted(range(len(graphs)), key=lambda number: -len(features[number]))
    found = dict[int, Path]()
    for first in range(0, len(order), TOGETHER):
        some = order[first : first + TOGETHER]
        paths = best_paths([graphs[number] for number in some], [score(features[number]) for number in some])
        found.update(zip(some, paths, strict=True))
    return [found[number] for number in range(len(graphs))]


def best_paths(graphs: Sequence[Graph], scores: Sequence[Scores]) -> list[Path]:
    """One best path for each graph and its scores, the longest first. Paths carry scores and no other weights."""
    lengths = np.array([len(each) for each in scores])
    assert (np.diff(lengths) <= 0).all(), "the longest utterance comes first"
    row = _Row.of(graphs)
    alive = np.searchsorted(-lengths, -np.arange(lengths[0]))  # utterances with a frame t
    nodes = row.ends[alive - 1]  # and their nodes
    emitted = np.concatenate([each.ravel() for each in scores])
    width = scores[0].shape[1]
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * width  # of each utterance, in `emitted`
    cell = np.repeat(first, row.sizes) + row.states

    best = np.full(len(cell) + 1, -np.inf)  # the last node is nowhere
    best[row.initial] = emitted[cell[row.initial]]
    choices = [np.zeros(len(cell), dtype=np.int8)]
    for t in range(1, lengths[0]):
        n = nodes[t]
        stay, step = best[:n], best.take(row.previous[:n])
        choice = (step > stay).view(np.int8)
        reached = np.maximum(stay, step)
        for number, (joint, source) in enumerate(row.further, start=2):
            upto = np.searchsorted(joint, n)
            other, here = best[source[:upto]], joint[:upto]
            better = other > reached[here]
            reached[here[better]] = other[better]
            choice[here[better]] = number
        best[:n] = reached + emitted.take(cell[:n] + t * width)
        choices.append(choice)
    return _traced(row, best, choices, lengths, alive)


def _traced(
    row: _Row, best: NDArray[np.float64], choices: list[NDArray[np.int8]], lengths: States, alive: States
) -> list[Path]:
    """Back along the choices, all utterances in step."""
    last = [final[best[final].argmax()] for final in row.final]
    scores, node = best[last], np.array(last)
    states = np.empty((len(lengths), lengths[0]), dtype=np.int64)
    for t in range(lengths[0] - 1, -1, -1):
        here = node[: alive[t]]
        states[: alive[t], t] = row.states[here]
        node[: alive[t]] = row.before[here, choices[t][here]]
    paths = zip(states, lengths, scores, strict=True)
    return [Path(each[:length].copy(), float(score)) for each, length, score in paths]


@dataclass(frozen=True, eq=False)
class _Row:
    """Graphs side by side. `previous` is where most nodes are entered from; `further` are the few other arcs."""

    states: States
    before: States
    previous: States
    further: list[tuple[States, States]]
    initial: States
    final: list[States]
    sizes: States
    ends: States

    @staticmethod
    def of(graphs: Sequence[Graph]) -> _Row:
        sizes = np.array([len(graph.states) for graph in graphs])
        ends = np.cumsum(sizes)
        offsets, nowhere = ends - sizes, ends[-1]
        before = np.full((nowhere, max(2, *(graph.before.shape[1] for graph in graphs))), nowhere)
        for graph, offset in zip(graphs, offsets, strict=True):
            n, p = graph.before.shape
            before[offset : offset + n, :p] = np.where(graph.before == NOWHERE, nowhere, graph.before + offset)
        joints = [np.flatnonzero(column != nowhere) for column in before[:, 2:].T]
        return _Row(
            states=np.concatenate([graph.states for graph in graphs]),
            before=before,
            previous=np.ascontiguousarray(before[:, 1]),
            further=[(joint, before[joint, number]) for number, joint in enumerate(joints, start=2)],
            initial=np.concatenate([graph.initial + offset for graph, offset in zip(graphs, offsets, strict=True)]),
            final=[graph.final + offset for graph, offset in zip(graphs, offsets, strict=True)],
            sizes=sizes,
            ends=ends,
        )
