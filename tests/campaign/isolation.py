"""What a case may do without harm to the machine: its own orphans, its own mounts, its own /dev/shm. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.campaign.case import Unavailable

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_CHILD_SUBREAPER = 36
_NEW_MOUNTS, _NEW_USER = 0x20000, 0x10000000
_READ_ONLY, _REMOUNT, _BIND, _PRIVATE_BELOW = 0x1, 0x20, 0x1000, 0x44000


def adopt_orphans() -> None:
    """Become the parent of whatever a killed child leaves running."""
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def own_mounts() -> None:
    """A view of the file system whose mounts are this process's own, and end with it; `Unavailable` if not allowed."""
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_MOUNTS) != 0:
        if _LIBC.unshare(_NEW_USER | _NEW_MOUNTS) != 0:
            raise Unavailable("mounts need the rights of root, or user namespaces")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount("none", Path("/"), "", _PRIVATE_BELOW)


def mount_small(path: Path, *, kilobytes: int, files: int = 0, again: bool = False) -> None:
    """A file system of so many kilobytes, and so many files if given, at `path`; `again` changes one that is there."""
    options = f"size={kilobytes}k" + (f",nr_inodes={files}" if files else "")
    _mount("tmpfs", path, "tmpfs", _REMOUNT if again else 0, options)


def mount_read_only(path: Path) -> None:
    """Whatever is at `path` cannot be changed, not even by root."""
    _mount(str(path), path, "", _BIND)
    _mount(str(path), path, "", _BIND | _REMOUNT | _READ_ONLY)


def unmount(path: Path) -> None:
    if _LIBC.umount2(os.fsencode(path), 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    words = (source.encode(), os.fsencode(target), kind.encode() or None, flags, options.encode() or None)
    if _LIBC.mount(*words) != 0:
        raise Unavailable(f"{target} cannot be mounted: {os.strerror(ctypes.get_errno())}")


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid`, the deepest last."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield child
        yield from descendants(child)


def end_below(pid: int) -> None:
    """Kill every process below `pid`, and it."""
    for each in [*descendants(pid), pid]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
