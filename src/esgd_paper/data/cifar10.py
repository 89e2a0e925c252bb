"""CIFAR-10, binary version: six files of 10,000 images, each one label byte and 3,072 bytes of red, green, blue planes.

The publisher's Python version is the same images in pickles, and nothing here unpickles.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esgd.errors import DataError
from esgd_paper.data.archive import unpack
from esgd_paper.data.fetch import Remote, fetch
from esgd_paper.data.files import alteration, beginning, reading
from esgd_paper.data.folders import Dataset, again, obtain

IMAGES, PIXELS, CLASSES = 10_000, 3 * 32 * 32, 10
BYTES = IMAGES * (1 + PIXELS)

DIGESTS = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""The SHA-256 of every file. Eight-bit pixels cannot look wrong, so nothing else would notice a damaged image."""

FOLDER, FILES = "cifar-10-batches-bin", tuple(DIGESTS)

ARCHIVE = Remote(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    name="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    bytes=170_052_171,
)


@dataclass(frozen=True, eq=False)
class Images:
    """Images as uint8 (n, 3, 32, 32) and labels as int64 (n,), in the publisher's order."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def cifar10(folder: Path | None = None, *, download: bool = False) -> Images:
    """The 50,000 training and 10,000 test images, read from `folder`, $ESGD_DATA or the user's cache."""
    place = obtain(CIFAR10, folder, download=download)
    *train, test = (place / name for name in FILES)
    return Images(*_read(train), *_read([test]))


def install(root: Path) -> None:
    """Download the set into a data folder."""
    archive = fetch(ARCHIVE, root)
    inside = {f"{FOLDER}/{name}": name for name in FILES}
    unpack(archive, root / FOLDER, wanted=inside.get, expected=FILES, fault=fault)
    archive.unlink()


def fault(place: Path) -> str:
    """How the files differ from the publisher's, if they do."""
    return next((found for name, digest in DIGESTS.items() if (found := alteration(place / name, digest))), "")


def _read(paths: list[Path]) -> tuple[Tensor, Tensor]:
    images = np.empty((len(paths), IMAGES, PIXELS), np.uint8)
    labels = np.empty((len(paths), IMAGES), np.int64)
    for path, pixels, classes in zip(paths, images, labels, strict=True):
        rows = _rows(path)
        pixels[:], classes[:] = rows[:, 1:], rows[:, 0]
    return torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels).view(-1)


def _rows(path: Path) -> NDArray[np.uint8]:
    with reading(path):
        length = path.stat().st_size
        if length != BYTES:
            raise DataError(
                f"{path} has {length:,} bytes, and {BYTES:,} were expected: {IMAGES:,} images of 1 + {PIXELS:,} "
                f"bytes. It begins with {beginning(path)!r}. It is truncated, or not of CIFAR-10's binary version. "
                f"{again(CIFAR10.name)}"
            )
        content = np.fromfile(path, np.uint8)
    got = sha256(content.data).hexdigest()
    rows = content.reshape(IMAGES, 1 + PIXELS)
    if got != DIGESTS[path.name]:
        raise DataError(
            f"{path} has the right size, but its SHA-256 is {got}, and {DIGESTS[path.name]} was "
            f"expected{_odd_label(rows)}. It is damaged, or another dataset in the same format. {again(CIFAR10.name)}"
        )
    return rows


def _odd_label(rows: NDArray[np.uint8]) -> str:
    odd = np.flatnonzero(rows[:, 0] >= CLASSES)
    return f"; image {odd[0]} has the label {rows[odd[0], 0]}, outside 0 … {CLASSES - 1}" if len(odd) else ""


CIFAR10 = Dataset(
    name="cifar10",
    title="CIFAR-10 (binary version)",
    about="60,000 colour images of 32 × 32 pixels in 10 classes; 162 MiB to download, 176 MiB on disk",
    folders=(FOLDER, "."),
    files=FILES,
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
    install=install,
    fault=fault,
    lookalikes={"cifar-10-batches-py": "is the Python version: pickles, which are not read."},
)
