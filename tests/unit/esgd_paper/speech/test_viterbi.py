"""The graph of a transcript holds exactly the ways of saying it, and the best path is the best of all paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esgd_paper.speech.graph import Graph, fewest_frames, transcript_graph
from esgd_paper.speech.viterbi import align, best_paths
from tests.unit.esgd_paper.speech.synthetic import LEXICON, WORDS, sentence, spoken

SENTENCES = st.lists(st.sampled_from(list(WORDS)), min_size=1, max_size=3)


def ways(words: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Every sequence of states that says the words: any pronunciation, each pause made or not."""
    spoken_ways = product(*(LEXICON.chains(word) for word in words))
    for chains, pauses in product(spoken_ways, product([False, True], repeat=len(words) + 1)):
        states = [*(LEXICON.silence if pauses[0] else [])]
        for chain, pause in zip(chains, pauses[1:], strict=True):
            states += chain + (LEXICON.silence if pause else [])
        yield tuple(states)


def through(graph: Graph) -> Iterator[tuple[int, ...]]:
    """Every sequence of states on a way through the graph that stays in no node."""
    after: dict[int, list[int]] = {node: [] for node in range(len(graph.states))}
    for node, (_, *sources) in enumerate(graph.before.tolist()):
        for source in sources:
            if source >= 0:
                after[source].append(node)

    def on(node: int, so_far: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        here = (*so_far, int(graph.states[node]))
        if node in graph.final:
            yield here
        for following in after[node]:
            yield from on(following, here)

    for node in graph.initial.tolist():
        yield from on(node, ())


@given(SENTENCES)
def test_the_graph_holds_every_way_of_saying_the_words_and_no_other(words: list[str]) -> None:
    assert sorted(through(transcript_graph(words, LEXICON))) == sorted(ways(words))


@given(SENTENCES)
def test_the_fewest_frames_are_those_of_the_shortest_way(words: list[str]) -> None:
    assert fewest_frames(words, LEXICON) == min(map(len, ways(words)))


def test_a_node_can_be_stayed_in() -> None:
    graph = transcript_graph(["AH"], LEXICON)
    assert graph.before[:, 0].tolist() == list(range(len(graph.states)))


def stretched(states: Sequence[int], frames: int) -> Iterator[tuple[int, ...]]:
    """Every way to let the states last `frames` frames altogether."""
    if len(states) == 1:
        yield (states[0],) * frames
        return
    for first in range(1, frames - len(states) + 2):
        for rest in stretched(states[1:], frames - first):
            yield (states[0],) * first + rest


def brute_force(words: Sequence[str], scores: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """The best of all state sequences, by looking at all of them."""
    frames = np.arange(len(scores))
    candidates = (path for way in ways(words) if len(way) <= len(scores) for path in stretched(way, len(scores)))
    return max((float(scores[frames, path].sum()), path) for path in candidates)


@given(
    words=st.sampled_from([["AH"], ["BACK"], ["AH", "AH"], ["BACK", "AH"]]),
    more=st.integers(0, 6),
    pauses=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 10**6),
)
def test_the_best_path_is_the_best_of_all_paths(words: list[str], more: int, pauses: float, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(fewest_frames(words, LEXICON) + more, LEXICON.states))
    scores[:, LEXICON.silence] += pauses
    (path,) = best_paths([transcript_graph(words, LEXICON)], [scores])
    score, states = brute_force(words, scores)
    assert path.states.tolist() == list(states)
    assert path.score == pytest.approx(score)


@settings(max_examples=20)
@given(SENTENCES)
def test_every_way_of_saying_the_words_is_found_where_it_was_planted(words: list[str]) -> None:
    graph = transcript_graph(words, LEXICON)
    for way in ways(words):
        planted = np.repeat(way, 2)
        scores = np.where(np.arange(LEXICON.states) == planted[:, None], 0.0, -1.0)
        (path,) = best_paths([graph], [scores])
        assert path.states.tolist() == planted.tolist()


def test_utterances_done_together_come_out_as_if_each_was_alone() -> None:
    rng = np.random.default_rng(3)
    said = [sentence(rng) for _ in range(40)]
    features = [spoken(words, rng)[0] for words in said]
    graphs = [transcript_graph(words, LEXICON) for words in said]

    def score(frames: np.ndarray) -> np.ndarray:
        return frames[:, :12].astype(np.float64)

    together = align(features, graphs, score)
    for number, path in enumerate(together):
        (alone,) = best_paths([graphs[number]], [score(features[number])])
        assert np.array_equal(path.states, alone.states)
        assert path.score == pytest.approx(alone.score)
        assert len(path.states) == len(features[number])


def test_an_utterance_that_is_too_short_has_no_path() -> None:
    graph = transcript_graph(["AH", "AH"], LEXICON)
    (path,) = best_paths([graph], [np.zeros((fewest_frames(["AH", "AH"], LEXICON) - 1, LEXICON.states))])
    assert path.score == -np.inf
