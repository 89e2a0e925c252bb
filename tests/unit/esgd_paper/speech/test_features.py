"""Normalisation, slopes, splicing and chunks, each against what it says it does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esgd_paper.speech.features import Scaling, chunked, covering, normalised, slopes, spliced, with_deltas

RNG = np.random.default_rng(0)
FRAMES = (RNG.normal(size=(40, 5)) * [1, 10, 0.1, 3, 2] + [0, 5, -3, 100, 1]).astype(np.float32)


def test_a_normalised_utterance_has_mean_0_and_variance_1() -> None:
    done = normalised(FRAMES)
    assert done.dtype == np.float32
    assert done.mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-5)
    assert done.std(axis=0) == pytest.approx(np.ones(5), abs=1e-4)


def test_microphone_and_loudness_are_taken_out() -> None:
    assert normalised(3 * FRAMES + 7) == pytest.approx(normalised(FRAMES), abs=1e-3)


def test_a_coefficient_that_never_changes_becomes_0() -> None:
    still = FRAMES.copy()
    still[:, 2] = 4.0
    assert (normalised(still)[:, 2] == 0).all()


def test_scaling_is_that_of_the_utterances_it_was_made_from() -> None:
    scaling = Scaling.of([FRAMES[:10], FRAMES[10:]])
    assert scaling(FRAMES) == pytest.approx(normalised(FRAMES), abs=1e-5)
    assert scaling(FRAMES[:3]) == pytest.approx(scaling(FRAMES)[:3])


def test_the_slope_of_a_straight_line_is_its_slope() -> None:
    line = (2 * np.arange(12) - 5).astype(np.float32)[:, None]
    assert slopes(line)[2:-2] == pytest.approx(np.full((8, 1), 2.0))


def test_the_slope_is_the_regression_through_five_frames() -> None:
    around = FRAMES[10:15].astype(np.float64)
    expected = np.polyfit(np.arange(5), around, deg=1)[0]
    assert slopes(FRAMES)[12] == pytest.approx(expected, abs=1e-4)


def test_the_first_frame_is_repeated_before_the_beginning() -> None:
    first, second, third = FRAMES[:3].astype(np.float64)
    assert slopes(FRAMES)[0] == pytest.approx((second - first + 2 * (third - first)) / 10, abs=1e-4)


def test_deltas_are_slopes_and_slopes_of_slopes() -> None:
    done = with_deltas(FRAMES)
    assert done.shape == (40, 15)
    assert np.array_equal(done[:, :5], FRAMES)
    assert np.array_equal(done[:, 5:10], slopes(FRAMES))
    assert np.array_equal(done[:, 10:], slopes(slopes(FRAMES)))


def test_a_spliced_frame_stands_between_its_neighbours() -> None:
    done = spliced(FRAMES, 2)
    assert done.shape == (40, 25)
    assert np.array_equal(done[7], FRAMES[5:10].ravel())


def test_splicing_repeats_the_first_and_the_last_frame() -> None:
    done = spliced(FRAMES, 2)
    assert np.array_equal(done[0], FRAMES[[0, 0, 0, 1, 2]].ravel())
    assert np.array_equal(done[-1], FRAMES[[-3, -2, -1, -1, -1]].ravel())


def test_chunks_do_not_overlap_and_drop_what_is_left_over() -> None:
    done = chunked(FRAMES, 12)
    assert done.shape == (3, 12, 5)
    assert np.array_equal(done.reshape(36, 5), FRAMES[:36])


@given(frames=st.integers(1, 70), length=st.integers(1, 25))
def test_covering_chunks_give_every_frame_back(frames: int, length: int) -> None:
    rows, places = covering(frames, length)
    assert rows.shape[1] == length
    assert rows.ravel()[places].tolist() == list(range(frames))
    assert len(rows) == -(-frames // length)


@given(frames=st.integers(1, 70), length=st.integers(1, 25))
def test_covering_chunks_are_consecutive_frames_where_there_are_enough(frames: int, length: int) -> None:
    rows, _ = covering(frames, length)
    steps = np.diff(rows, axis=1)
    assert (steps == 1).all() if frames >= length else (steps >= 0).all()
