"""Frames that users bring, dealt out as samples: between their neighbours, or in chunks."""

from __future__ import annotations

import numpy as np

from esgd_paper.data.frames import Frames
from esgd_paper.speech.features import spliced
from esgd_paper.tasks.frames import Chunks, Spliced

RNG = np.random.default_rng(0)


def frames(*lengths: int, dimension: int) -> Frames:
    features = tuple(RNG.normal(size=(length, dimension)).astype(np.float32) for length in lengths)
    states = tuple(RNG.integers(0, 9, size=length) for length in lengths)
    return Frames(tuple(f"utterance-{number}" for number in range(len(lengths))), features, states)


def test_frames_are_spliced_inside_their_own_utterance() -> None:
    given = frames(7, 3, 12, dimension=4)
    found = Spliced(given, 4)
    assert len(found) == 22
    expected = np.concatenate([spliced(each, 4) for each in given.features])
    assert np.array_equal(np.stack([found[index][0].numpy() for index in range(len(found))]), expected)
    assert [found[index][1] for index in range(len(found))] == np.concatenate(given.states).tolist()


def test_chunks_stay_inside_their_utterance_and_drop_what_is_left_over() -> None:
    given = frames(45, 20, 21, dimension=5)
    found = Chunks(given, 21)
    assert len(found) == 3
    for index, (utterance, start) in enumerate(((0, 0), (0, 21), (2, 0))):
        x, y = found[index]
        assert np.array_equal(x.numpy(), given.features[utterance][start : start + 21])
        assert np.array_equal(y.numpy(), given.states[utterance][start : start + 21])
