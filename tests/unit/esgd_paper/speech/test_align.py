"""Viterbi training finds a segmentation that nobody told it."""

from __future__ import annotations

import numpy as np
import pytest

from esgd.randomness import Seeds
from esgd_paper.speech.align import flat_start, viterbi_training
from esgd_paper.speech.gaussians import VARIANCE_FLOOR, Gaussians
from esgd_paper.speech.graph import transcript_graph
from esgd_paper.speech.network import log_priors, network_scores
from esgd_paper.speech.viterbi import align
from tests.unit.esgd_paper.speech.synthetic import LEXICON, sentence, spoken

RNG = np.random.default_rng(1)
SAID = [sentence(RNG) for _ in range(80)]
PAIRS = [spoken(words, RNG) for words in SAID]
FEATURES, TRUTH = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
GRAPHS = [transcript_graph(words, LEXICON) for words in SAID]
FLAT = [flat_start(words, len(each), LEXICON) for words, each in zip(SAID, FEATURES, strict=True)]


def right(found: list[np.ndarray]) -> float:
    """The share of frames that are in the state they were spoken in."""
    return float((np.concatenate(found) == np.concatenate(TRUTH)).mean())


def test_a_flat_start_lets_every_state_last_equally_long() -> None:
    states = flat_start(["AH", "BACK"], 100, LEXICON)
    assert len(states) == 100
    assert states[:12].tolist() == [9] * 4 + [10] * 4 + [11] * 4
    assert states[-12:].tolist() == [9] * 4 + [10] * 4 + [11] * 4
    middle = [0, 1, 2, *LEXICON.chains("BACK")[0]]
    runs = np.flatnonzero(np.diff(states[12:88])) + 1
    assert states[12:88][[0, *runs]].tolist() == middle
    assert set(np.diff([0, *runs, 76])) <= {6, 7}


def test_the_planted_segmentation_is_found() -> None:
    assert right(FLAT) < 0.4
    found = viterbi_training(FEATURES, GRAPHS, FLAT, states=LEXICON.states)
    assert right(found.states) > 0.97
    assert found.changed[0] > 0.5
    assert found.changed[-1] < 0.05


def test_the_likelihood_never_falls() -> None:
    found = viterbi_training(FEATURES, GRAPHS, FLAT, states=LEXICON.states, passes=5)
    assert len(found.likelihood) == 5
    assert (np.diff(found.likelihood) >= -1e-9).all()


def test_paths_say_what_was_said() -> None:
    """Without repetitions, a path is one of the ways through the graph: it never leaves a word out."""
    found = viterbi_training(FEATURES, GRAPHS, FLAT, states=LEXICON.states, passes=1)
    for words, states in zip(SAID, found.states, strict=True):
        firsts = [int(states[0]), *states[1:][np.diff(states) != 0].tolist()]
        spoken_states = [state for state in firsts if state not in LEXICON.silence]
        length = sum(len(LEXICON.chains(word)[0]) for word in words)
        shortest = sum(min(map(len, LEXICON.chains(word))) for word in words)
        assert shortest <= len(spoken_states) <= length


def test_gaussians_are_the_mean_and_variance_of_their_frames() -> None:
    frames, states = np.concatenate(FEATURES), np.concatenate(TRUTH)
    fitted = Gaussians.fitted(frames, states, count=LEXICON.states)
    mine = frames[states == 4].astype(np.float64)
    assert fitted.means[4] == pytest.approx(mine.mean(axis=0))
    assert fitted.variances[4] == pytest.approx(np.maximum(mine.var(axis=0), VARIANCE_FLOOR))


def test_log_likelihoods_are_those_of_the_density() -> None:
    fitted = Gaussians.fitted(np.concatenate(FEATURES), np.concatenate(TRUTH), count=LEXICON.states)
    found = fitted.log_likelihoods(FEATURES[0])
    assert found.shape == (len(FEATURES[0]), LEXICON.states)
    for state in (0, 7):
        mean, variance = fitted.means[state], fitted.variances[state]
        densities = np.exp(-np.square(FEATURES[0] - mean) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        near = (densities > 1e-30).all(axis=1)
        assert near.any()
        assert np.exp(found[near, state]) == pytest.approx(densities[near].prod(axis=1), rel=1e-6)


def test_a_state_that_was_never_seen_looks_like_speech_as_a_whole() -> None:
    frames, states = np.concatenate(FEATURES), np.concatenate(TRUTH)
    fitted = Gaussians.fitted(frames, np.where(states == 4, 3, states), count=LEXICON.states)
    assert fitted.means[4] == pytest.approx(frames.mean(axis=0, dtype=np.float64))


def test_a_network_learns_the_states_and_finds_them_elsewhere() -> None:
    score = network_scores(FEATURES[:60], TRUTH[:60], count=LEXICON.states, seeds=Seeds(0))
    paths = align(FEATURES[60:], GRAPHS[60:], score)
    wrong = [(path.states != truth).mean() for path, truth in zip(paths, TRUTH[60:], strict=True)]
    assert np.mean(wrong) < 0.05


def test_the_network_depends_on_its_seeds_alone() -> None:
    first, again, other = (
        network_scores(FEATURES[:10], TRUTH[:10], count=LEXICON.states, seeds=Seeds(root))(FEATURES[0])
        for root in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_priors_are_how_often_states_occur() -> None:
    priors = np.exp(log_priors([np.array([0, 0, 1]), np.array([0])], count=3))
    assert priors == pytest.approx([3 / 5, 1 / 5, 1 / 5])
