"""CIFAR-10's binary version: the real images, and files that are not."""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from esgd.errors import DataError
from esgd_paper.data import Images, cifar10
from tests.real_data import real_data

NAMES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
BYTES = 30_730_000


@pytest.fixture(scope="module")
def images() -> Images:
    return cifar10(real_data("cifar10"))


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    """Six files of the right size, all zeros: holes, which take no disk."""
    for name in NAMES:
        with (tmp_path / name).open("wb") as file:
            file.truncate(BYTES)
    return tmp_path


def channels_last(pixels: torch.Tensor) -> str:
    return sha256(pixels.permute(0, 2, 3, 1).contiguous().numpy().tobytes()).hexdigest()


@pytest.mark.slow
def test_the_images_are_the_publishers(images: Images) -> None:
    assert images.train.shape == (50_000, 3, 32, 32)
    assert images.test.shape == (10_000, 3, 32, 32)
    assert channels_last(images.train) == "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"
    assert channels_last(images.test) == "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"


def test_the_labels_are_balanced_and_belong_to_the_images(images: Images) -> None:
    assert images.train_labels.bincount().tolist() == [5_000] * 10
    assert images.test_labels.bincount().tolist() == [1_000] * 10
    assert images.train_labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]  # frog, truck, truck, deer, …
    assert images.test_labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]


def test_the_tensors_are_plain_and_contiguous(images: Images) -> None:
    assert images.train.dtype == images.test.dtype == torch.uint8
    assert images.train_labels.dtype == images.test_labels.dtype == torch.int64
    assert all(tensor.is_contiguous() for tensor in vars(images).values())


def test_the_mean_of_each_colour_is_the_known_one(images: Images) -> None:
    mean = images.train.to(torch.float32).mean(dim=(0, 2, 3)) / 255
    assert mean.tolist() == pytest.approx([0.49140, 0.48216, 0.44653], abs=1e-5)


def test_loading_takes_less_than_two_seconds(images: Images) -> None:
    """Of the processor's time: a machine that is busy with other things says nothing about the reader."""
    folder = real_data("cifar10")
    begin = time.process_time()
    cifar10(folder)
    assert time.process_time() - begin < 2


def test_a_truncated_file_is_named_with_both_sizes(blank: Path) -> None:
    with (blank / "data_batch_1.bin").open("wb") as file:
        file.truncate(BYTES - 1)
    with pytest.raises(DataError, match="data_batch_1.bin has 30,729,999 bytes, and 30,730,000 were expected"):
        cifar10(blank)


def test_a_foreign_file_is_named_with_its_first_bytes(blank: Path) -> None:
    (blank / "data_batch_1.bin").write_bytes(b"\x1f\x8b\x08compressed")
    with pytest.raises(DataError, match="data_batch_1.bin has 13 bytes.*begins with b'.x1f.x8b"):
        cifar10(blank)


def test_other_images_in_the_same_format_are_refused(blank: Path) -> None:
    with pytest.raises(DataError, match="data_batch_1.bin has the right size, but its SHA-256 is ") as refused:
        cifar10(blank)
    assert "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5" in str(refused.value)
    assert "label" not in str(refused.value)


def test_a_label_that_is_none_is_named_with_its_image(blank: Path) -> None:
    with (blank / "data_batch_1.bin").open("r+b") as file:
        file.seek(1234 * 3073)
        file.write(b"\x0a")
    with pytest.raises(DataError, match="image 1234 has the label 10, outside 0 … 9"):
        cifar10(blank)


def test_one_altered_pixel_of_the_real_images_is_noticed(tmp_path: Path) -> None:
    real = real_data("cifar10") / "cifar-10-batches-bin"
    for name in NAMES:
        (tmp_path / name).symlink_to(real / name)
    damaged = bytearray((real / "data_batch_3.bin").read_bytes())
    damaged[20_000_000] ^= 1
    (tmp_path / "data_batch_3.bin").unlink()
    (tmp_path / "data_batch_3.bin").write_bytes(damaged)
    with pytest.raises(DataError, match="data_batch_3.bin has the right size, but its SHA-256"):
        cifar10(tmp_path)
