"""Samples that are the same each time are decoded once, and the batches are those of samples decoded anew."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from esgd.randomness import Seeds
from esgd.tasks import kept_samples
from esgd.tasks.datasets import Mapped

SAMPLES, BATCH = 12, 4


class Decoded(Dataset[Any]):
    """Counts how often each sample is read. `noise` is what a reading adds."""

    def __init__(self, noise: Any = lambda: 0.0) -> None:
        self.read, self.noise, self.scale = Counter[int](), noise, 1.0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read[index] += 1
        return torch.full((3,), float(index)) * self.scale + self.noise(), index


@pytest.fixture(autouse=True)
def reading_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine as fast as it may be."""
    monkeypatch.setattr(kept_samples, "CHEAP", 0.0)


def epochs(source: Mapped, count: int, first: int = 0) -> list[list[Tensor]]:
    return [[x for x, _ in source.epoch(Seeds(0).at(number), BATCH)] for number in range(first, first + count)]


def equal(one: list[list[Tensor]], other: list[list[Tensor]]) -> bool:
    return all(map(torch.equal, [x for epoch in one for x in epoch], [x for epoch in other for x in epoch]))


def test_a_sample_that_stays_the_same_is_decoded_twice_and_then_now_and_then() -> None:
    dataset = Decoded()
    epochs(Mapped(dataset), 2)
    assert set(dataset.read.values()) == {2}
    epochs(Mapped(dataset), 2)  # another source begins anew
    assert set(dataset.read.values()) == {4}
    dataset.read.clear()
    epochs(source := Mapped(dataset), 10)
    assert dataset.read.total() == 2 * SAMPLES + 8 * SAMPLES // BATCH, "one of each batch is looked at again"
    assert source.samples == SAMPLES


def test_batches_are_those_of_a_dataset_that_is_read_each_time() -> None:
    ignored = lambda: 0.0 * float(torch.rand(()))  # noqa: E731  # a draw: nothing is kept then
    kept, read = Decoded(), Decoded(ignored)
    assert equal(epochs(Mapped(kept), 5), epochs(Mapped(read), 5))
    assert set(read.read.values()) == {5}
    assert kept.read.total() < read.read.total()


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(lambda: torch.rand(()), id="torch"),
        pytest.param(lambda: float(np.random.rand() < 1e-6), id="NumPy, and it rarely matters"),  # noqa: NPY002
        pytest.param(np.random.default_rng(0).random, id="a generator of its own"),
        pytest.param(lambda: float("nan"), id="NaN, which is equal to nothing"),
    ],
)
def test_a_sample_that_changes_is_read_each_time(noise: Any) -> None:
    dataset = Decoded(noise)
    epochs(Mapped(dataset), 4)
    assert set(dataset.read.values()) == {4}


def test_augmentation_depends_on_the_address_as_before() -> None:
    augmented = Decoded(lambda: torch.rand(()))
    assert equal(epochs(Mapped(augmented), 3), epochs(Mapped(augmented), 3))


def test_a_dataset_that_is_changed_during_a_run_is_noticed_in_the_same_batch() -> None:
    dataset = Decoded()
    source, plain = Mapped(dataset), Mapped(Decoded(lambda: torch.rand(())))
    epochs(source, 3)
    dataset.scale, plain.dataset.scale = 2.0, 2.0  # type: ignore[attr-defined]
    dataset.noise = lambda: torch.rand(())
    assert equal(epochs(source, 2, first=3), epochs(plain, 2, first=3)), "also its draws are those of the address"


def test_what_collate_writes_into_a_sample_is_not_kept() -> None:
    def doubled(samples: list[Any]) -> Any:
        for x, _ in samples:
            x.mul_(2)
        return default_collate(samples)

    once = epochs(Mapped(Decoded(), collate=doubled), 1)
    assert equal(once, [epochs(Mapped(Decoded(), collate=doubled), 6)[0]])
    many = epochs(source := Mapped(Decoded(), collate=doubled), 6)
    assert equal([many[5]], epochs(source, 1, first=5))
    assert all(sum(float(x.sum()) for x in epoch) == 2 * 3 * sum(range(SAMPLES)) for epoch in many)


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "KEPT_BYTES", 5 * 3 * 4)  # five samples
    monkeypatch.setattr(kept_samples, "ENOUGH", 5)
    dataset = Decoded()
    epochs(Mapped(dataset), 10)
    often = [index for index, times in dataset.read.items() if times == 10]
    assert len(often) >= SAMPLES - 5
    assert dataset.read.total() < 10 * SAMPLES


def test_what_is_read_at_once_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_samples, "CHEAP", 900.0)
    monkeypatch.setattr(kept_samples, "LOOKED_AT", 1)
    dataset = Decoded()
    epochs(Mapped(dataset), 10)
    assert set(dataset.read.values()) == {10}


def test_a_copy_for_another_process_begins_with_nothing() -> None:
    source = Mapped([(torch.full((3,), float(index)), index) for index in range(SAMPLES)])
    epochs(source, 1)
    once = len(pickle.dumps(source))
    before = epochs(source, 3)
    assert len(pickle.dumps(source)) == once
    assert equal(before, epochs(pickle.loads(pickle.dumps(source)), 3))
