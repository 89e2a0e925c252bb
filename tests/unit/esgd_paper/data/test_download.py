"""Whole datasets from a server on this machine: downloaded, unpacked, checked, and refused when they are not right."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import pytest

from esgd.errors import DataError
from esgd.studies import download
from esgd_paper.data import an4, cifar10, ptb
from tests.real_data import real_data
from tests.unit.esgd_paper.data.publisher import Publisher

CIFAR10 = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
MIRROR = "Machine-Learning-Project-ASR-5e478f0"


def tar(members: dict[str, Path | bytes | str], *, compressed: bool = False) -> bytes:
    """An archive; a string is where a symbolic link leads to."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz" if compressed else "w") as archive:
        for name, member in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(member, str):
                info.type, info.linkname = tarfile.SYMTYPE, member
                archive.addfile(info)
                continue
            data = member.read_bytes() if isinstance(member, Path) else member
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def spoken() -> dict[str, Path | bytes | str]:
    """The real AN4 as the mirror's archive has it, among other things."""
    folder = real_data("an4") / "an4"
    files = {f"{MIRROR}/an4/{path.relative_to(folder)}": path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {f"{MIRROR}/README.md": b"a project", **files}


@pytest.fixture
def publish(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a dataset's archive come from here."""

    def serve(name: str, content: bytes, **changes: object) -> None:
        module = import_module(f"esgd_paper.data.{name}")
        publisher.files[module.ARCHIVE.name] = content
        local = replace(module.ARCHIVE, url=publisher.url(module.ARCHIVE.name), **changes)
        monkeypatch.setattr(module, "ARCHIVE", local)

    return serve


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


@pytest.mark.slow
def test_cifar10_is_downloaded_unpacked_and_read(
    publish: Callable[..., None], publisher: Publisher, tmp_path: Path
) -> None:
    real = real_data("cifar10") / "cifar-10-batches-bin"
    content = tar({f"cifar-10-batches-bin/{name}": real / name for name in [*CIFAR10, "batches.meta.txt"]})
    publish("cifar10", content, sha256=sha256(content).hexdigest(), bytes=len(content))
    assert len(cifar10(tmp_path, download=True).train) == 50_000
    assert visible(tmp_path) == ["cifar-10-batches-bin"]
    assert visible(tmp_path / "cifar-10-batches-bin") == sorted(CIFAR10)
    assert download("cifar10", tmp_path) == tmp_path / "cifar-10-batches-bin"
    assert len(publisher.requests) == 1


def test_other_images_are_not_put_in_place(publish: Callable[..., None], tmp_path: Path) -> None:
    content = tar({f"cifar-10-batches-bin/{name}": b"other" for name in CIFAR10})
    publish("cifar10", content, sha256=sha256(content).hexdigest(), bytes=len(content))
    with pytest.raises(
        DataError,
        match="cifar-10-binary.tar.gz does not hold what the publisher offers: the SHA-256 of data_batch_1.bin",
    ):
        download("cifar10", tmp_path)
    assert visible(tmp_path / "cifar-10-batches-bin") == []


def test_a_link_in_place_of_a_file_is_refused(publish: Callable[..., None], tmp_path: Path) -> None:
    content = tar({f"cifar-10-batches-bin/{name}": "/etc/passwd" for name in CIFAR10})
    publish("cifar10", content, sha256=sha256(content).hexdigest(), bytes=len(content))
    with pytest.raises(DataError, match="has cifar-10-batches-bin/data_batch_1.bin as something other than a file"):
        download("cifar10", tmp_path)


def test_an_archive_that_lacks_a_file_is_named_with_it(publish: Callable[..., None], tmp_path: Path) -> None:
    content = tar({f"cifar-10-batches-bin/{name}": b"x" for name in CIFAR10[:-1]})
    publish("cifar10", content, sha256=sha256(content).hexdigest(), bytes=len(content))
    with pytest.raises(DataError, match="cifar-10-binary.tar.gz does not hold test_batch.bin"):
        download("cifar10", tmp_path)


def test_an4_is_taken_out_of_its_mirror_and_nothing_else_is(publish: Callable[..., None], tmp_path: Path) -> None:
    hostile = {f"{MIRROR}/an4/feat/../../../evil.mfc": b"evil", "../evil": b"evil", "/evil": b"evil"}
    publish("an4", tar({**spoken(), **hostile}))
    assert len(an4(tmp_path / "data", download=True).train) == 948
    assert visible(tmp_path) == ["data"]
    assert visible(tmp_path / "data") == ["an4"]
    assert visible(tmp_path / "data" / "an4") == ["LICENSE", "etc", "feat"]


def test_an4_with_one_other_word_is_refused_and_not_kept(publish: Callable[..., None], tmp_path: Path) -> None:
    members = spoken()
    lists = f"{MIRROR}/an4/etc/an4_test.transcription"
    assert isinstance(members[lists], Path)
    members[lists] = members[lists].read_bytes().replace(b"THREE NINE", b"THREE FIVE", 1)
    publish("an4", tar(members))
    with pytest.raises(DataError, match="does not hold what the publisher offers: the SHA-256 of its content is"):
        download("an4", tmp_path)
    assert visible(tmp_path / "an4") == []
    assert visible(tmp_path) == ["an4"]


def test_half_an_archive_is_refused_and_not_kept(publish: Callable[..., None], tmp_path: Path) -> None:
    content = tar({f"{MIRROR}/an4/etc/an4.phone": bytes(range(256)) * 400}, compressed=True)
    publish("an4", content[: len(content) // 2])
    with pytest.raises(DataError, match="an4-mirror.tar.gz is not a whole tar archive"):
        download("an4", tmp_path)
    assert "an4-mirror.tar.gz" not in visible(tmp_path)


def test_what_is_no_archive_is_refused(publish: Callable[..., None], tmp_path: Path) -> None:
    publish("an4", b"not an archive at all")
    with pytest.raises(DataError, match="is not a whole tar archive"):
        download("an4", tmp_path)


@pytest.fixture
def texts(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the real Penn Treebank come from here."""
    module = import_module("esgd_paper.data.ptb")
    for remote in module.REMOTES:
        publisher.files[remote.name] = (real_data("ptb") / "ptb" / remote.name).read_bytes()
    local = tuple(replace(remote, url=publisher.url(remote.name)) for remote in module.REMOTES)
    monkeypatch.setattr(module, "REMOTES", local)


@pytest.mark.usefixtures("texts")
def test_the_treebank_is_downloaded_once_and_read(publisher: Publisher, tmp_path: Path) -> None:
    assert len(ptb(tmp_path, download=True).train) == 929_589
    assert download("ptb", tmp_path) == tmp_path / "ptb"
    assert len(publisher.requests) == 3


@pytest.mark.usefixtures("texts")
def test_only_what_is_missing_is_downloaded(publisher: Publisher, tmp_path: Path) -> None:
    download("ptb", tmp_path)
    (tmp_path / "ptb" / "ptb.valid.txt").unlink()
    publisher.requests.clear()
    download("ptb", tmp_path)
    assert len(publisher.requests) == 1


@pytest.mark.usefixtures("texts")
def test_a_damaged_copy_is_named_and_not_overwritten(tmp_path: Path) -> None:
    path = download("ptb", tmp_path) / "ptb.test.txt"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(DataError, match="ptb is not Penn Treebank .* as published: the SHA-256 of ptb.test.txt is"):
        download("ptb", tmp_path)
    assert path.exists()


def test_downloads_go_to_the_users_cache_when_no_folder_is_named(texts: None, cache: Path) -> None:
    assert download("ptb") == cache / "ptb"


def test_a_set_that_is_somewhere_else_is_not_downloaded(publisher: Publisher, texts: None, cache: Path) -> None:
    download("ptb", cache)
    publisher.requests.clear()
    ptb(download=True)
    assert publisher.requests == []
