"""Downloads from a server on this machine: whole, broken, altered, refused, and with no room for them."""

from __future__ import annotations

import os
import pty
import resource
import socket
import sys
import threading
from collections import namedtuple
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from esgd.errors import DataError
from esgd_paper.data import Remote, fetch
from esgd_paper.data.fetch import PIECE
from tests.unit.esgd_paper.data.publisher import Publisher

CONTENT = np.random.default_rng(0).bytes(3_000_000)
USAGE = namedtuple("USAGE", "total used free")


def remote(publisher: Publisher, name: str = "set.bin", **changes: object) -> Remote:
    publisher.files.setdefault(name, CONTENT)
    known = {"sha256": sha256(CONTENT).hexdigest(), "bytes": len(CONTENT), **changes}
    return Remote(url=publisher.url(name), name=name, **known)  # type: ignore[arg-type]


def test_a_file_arrives_whole_and_leaves_nothing_behind(publisher: Publisher, tmp_path: Path) -> None:
    got = fetch(remote(publisher), tmp_path / "new" / "folder")
    assert got == tmp_path / "new" / "folder" / "set.bin"
    assert got.read_bytes() == CONTENT
    assert [path.name for path in got.parent.iterdir() if path.suffix != ".lock"] == ["set.bin"]


def test_a_file_that_is_there_is_not_fetched_again(publisher: Publisher, tmp_path: Path) -> None:
    fetch(remote(publisher), tmp_path)
    fetch(remote(publisher), tmp_path)
    assert len(publisher.requests) == 1


def test_another_file_of_the_same_name_is_refused_and_kept(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin").write_bytes(b"my own")
    with pytest.raises(DataError, match="set.bin is another file than http") as refused:
        fetch(remote(publisher), tmp_path)
    assert sha256(b"my own").hexdigest() in str(refused.value)
    assert sha256(CONTENT).hexdigest() in str(refused.value)
    assert (tmp_path / "set.bin").read_bytes() == b"my own"
    assert publisher.requests == []


def test_a_download_goes_on_from_what_an_earlier_one_left(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1_000_000])
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == ["bytes=1000000-"]


def test_what_is_whole_already_is_not_asked_for(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT)
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == []


def test_a_server_without_ranges_sends_everything_again(publisher: Publisher, tmp_path: Path) -> None:
    publisher.ranges = False
    (tmp_path / "set.bin.part").write_bytes(b"x" * 1_000_000)
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT


def test_a_remainder_longer_than_the_file_is_dropped(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT + b"more")
    assert fetch(remote(publisher, bytes=None), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == [f"bytes={len(CONTENT) + 4}-", ""]


def test_a_connection_that_breaks_is_taken_up_again_at_once(publisher: Publisher, tmp_path: Path) -> None:
    publisher.breaks_after = [1_000_000, 500_000]
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == ["", "bytes=1000000-", "bytes=1500000-"]


def test_a_connection_that_keeps_breaking_is_an_error_and_the_next_call_resumes(
    publisher: Publisher, tmp_path: Path
) -> None:
    publisher.breaks_after = [500_000] * 3
    with pytest.raises(DataError, match="broke: it was closed after 1,500,000 of 3,000,000 bytes") as broken:
        fetch(remote(publisher), tmp_path)
    assert str(tmp_path / "set.bin.part") in str(broken.value)
    assert "it continues from there" in str(broken.value)
    assert (tmp_path / "set.bin.part").read_bytes() == CONTENT[:1_500_000]
    assert not (tmp_path / "set.bin").exists()
    publisher.requests.clear()
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == ["bytes=1500000-"]


def test_a_break_without_a_declared_length_is_noticed_too(publisher: Publisher, tmp_path: Path) -> None:
    publisher.declares_length = False
    publisher.breaks_after = [100_000] * 3
    with pytest.raises(DataError, match="closed after 300,000 of 3,000,000 bytes"):
        fetch(remote(publisher), tmp_path)


def test_without_a_checksum_a_broken_download_begins_anew(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(b"of another version")
    publisher.breaks_after = [1_000_000]
    assert fetch(remote(publisher, sha256=None), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == ["", ""]


def test_a_wrong_checksum_says_both_and_removes_what_came(publisher: Publisher, tmp_path: Path) -> None:
    altered = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]
    publisher.files["set.bin"] = altered
    with pytest.raises(DataError, match="was expected") as wrong:
        fetch(remote(publisher), tmp_path)
    assert sha256(altered).hexdigest() in str(wrong.value)
    assert sha256(CONTENT).hexdigest() in str(wrong.value)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_another_length_is_refused_before_it_is_downloaded(publisher: Publisher, tmp_path: Path) -> None:
    publisher.files["set.bin"] = CONTENT[:10]
    with pytest.raises(DataError, match="offers 10 bytes, and 3,000,000 were expected"):
        fetch(remote(publisher), tmp_path)
    assert not (tmp_path / "set.bin").exists()


def test_a_disk_that_fills_up_is_explained_and_what_came_is_kept(publisher: Publisher, tmp_path: Path) -> None:
    room, limits = 4 * PIECE, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))  # no file may have more
    try:
        with pytest.raises(DataError, match="The disk is full: .*set.bin.part needs 1,951,424 bytes") as full:
            fetch(remote(publisher), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "(1.9 MiB) more" in str(full.value)
    assert "continues from there" in str(full.value)
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert publisher.requests[-1] == f"bytes={room}-"


def test_a_disk_without_room_is_noticed_before_the_download(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1_000_000])
    monkeypatch.setattr("shutil.disk_usage", lambda folder: USAGE(10**9, 10**9, 1_500_000))
    with pytest.raises(DataError, match="needs 2,000,000 bytes .* more, and 1.4 MiB are free"):
        fetch(remote(publisher), tmp_path)
    assert (tmp_path / "set.bin.part").read_bytes() == CONTENT[:1_000_000]


def test_a_folder_that_cannot_be_written_is_named(publisher: Publisher) -> None:
    with pytest.raises(DataError, match="/proc/nowhere cannot be written"):
        fetch(remote(publisher), Path("/proc/nowhere"))


def test_a_file_that_is_gone_is_an_error_with_its_address(publisher: Publisher, tmp_path: Path) -> None:
    where = Remote(url=publisher.url("old.bin"), name="old.bin", sha256="0" * 64)
    with pytest.raises(DataError, match="/old.bin answers 404 Not Found: the file has moved or been removed"):
        fetch(where, tmp_path)


@pytest.mark.parametrize("content_type", ["text/html", "application/octet-stream"], ids=["said so", "looks so"])
def test_a_web_page_in_place_of_data_is_refused(publisher: Publisher, tmp_path: Path, content_type: str) -> None:
    publisher.files["set.bin"] = b"\n<!DOCTYPE html><html>Welcome to the hotel's network</html>"
    publisher.content_type = content_type
    with pytest.raises(DataError, match="web page .HTML. instead of set.bin"):
        fetch(remote(publisher, bytes=None), tmp_path)
    assert not (tmp_path / "set.bin").exists()


def test_no_network_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        nobody = Remote(url=f"http://127.0.0.1:{taken.getsockname()[1]}/set.bin", name="set.bin", sha256="0" * 64)
        with pytest.raises(DataError, match="cannot be reached: .*refused.* Check the network") as refused:
            fetch(nobody, tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_two_that_want_the_same_file_fetch_it_once(publisher: Publisher, tmp_path: Path) -> None:
    wanted = remote(publisher)
    threads = [threading.Thread(target=fetch, args=(wanted, tmp_path)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(publisher.requests) == 1
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_progress_is_shown_on_a_terminal_and_nowhere_else(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(remote(publisher), tmp_path / "elsewhere")
    assert capsys.readouterr() == ("", "")
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        fetch(remote(publisher), tmp_path / "quiet", progress=False)
        fetch(remote(publisher), tmp_path / "terminal")
        monkeypatch.undo()
        shown = os.read(ours, 1 << 16)
    os.close(ours)
    assert b"set.bin" in shown
    assert b"2.9/2.9 MiB" in shown
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("size", [0, 1_000_000, len(CONTENT)])
def test_a_download_is_written_through_no_link(publisher: Publisher, tmp_path: Path, size: int) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(CONTENT[:size])
    (tmp_path / "set.bin.part").symlink_to(victim)
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert not (tmp_path / "set.bin").is_symlink()
    assert victim.read_bytes() == CONTENT[:size]


def test_what_is_no_file_in_the_place_of_one_is_named(publisher: Publisher, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "set.bin")
    with pytest.raises(DataError, match="set.bin is no file"):
        fetch(remote(publisher), tmp_path)


def test_a_file_that_is_there_may_be_a_link(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(CONTENT)
    (tmp_path / "set.bin").symlink_to(tmp_path / "elsewhere")
    assert fetch(remote(publisher), tmp_path).read_bytes() == CONTENT
    assert publisher.requests == []
