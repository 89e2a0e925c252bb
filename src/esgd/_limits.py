"""What a machine refuses: memory, open files, threads. Which of them an error is about, and what to do then.

Torch, Python and the operating system each say it in their own way, most often without a remedy.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

from esgd.errors import EngineError, EsgdError

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_MEMORY = re.compile(
    r"allocate memory|out of memory|not enough memory|bad_alloc|failed to map segment|os error 12\b", re.I
)
_FILES = re.compile(r"too many open files|os error 24\b", re.I)
_THREADS = re.compile(r"can't start new thread|resource temporarily unavailable", re.I)
_SHARED = re.compile(r"out of shared memory|insufficient shared memory", re.I)


def shortage(error: BaseException) -> str:
    """What the machine has too little of and what to do, where the error is about that; else nothing.

    >>> shortage(MemoryError())[:28]
    'there is no memory left for '
    >>> shortage(ValueError("elites"))
    ''
    """
    code, said = getattr(error, "errno", None), str(error)
    if isinstance(error, EsgdError):
        return ""
    if _SHARED.search(said):
        return (
            "there is no shared memory left for the DataLoader's processes. Enlarge /dev/shm (docker run "
            "--shm-size=1g), or build the task with workers=0."
        )
    if isinstance(error, MemoryError) or code == errno.ENOMEM or _MEMORY.search(said):
        return (
            f"there is no memory left for {_asked(said)}{_allowed('RLIMIT_AS', 'ulimit -v', 1)}. Use a smaller "
            f"population or batch, fewer workers, a smaller chunk, or raise the limit."
        )
    if code in (errno.EMFILE, errno.ENFILE) or _FILES.search(said):
        return (
            f"this process may not open more files{_allowed('RLIMIT_NOFILE', 'ulimit -n', 0)}. Raise the limit (ulimit "
            f"-n 4096), or use fewer workers, or engine='loop', which needs hardly any."
        )
    if code == errno.EAGAIN or (isinstance(error, RuntimeError) and _THREADS.search(said)):
        return (
            "the system starts no more threads or processes here. Use fewer workers or engine='loop:threads=1', or "
            "raise the limit (ulimit -u, ulimit -v, or that of the container)."
        )
    return ""


@contextmanager
def within_limits() -> Iterator[None]:
    """Raise what the machine refuses as an `EngineError` that says what to do; what was noted on it is kept."""
    try:
        yield
    except Exception as error:
        told = shortage(error)
        if not told:
            raise
        explained = EngineError(told)
        for note in getattr(error, "__notes__", ()):
            explained.add_note(note)
        raise explained from error


def available_memory() -> float:
    """Bytes that this process can have without pushing others out, where the system says so."""
    return max(0.0, min(_free(), _left_to_process(), _left_to_group()))


def _free() -> float:
    """Of the machine."""
    return _told(Path("/proc/meminfo"), "MemAvailable:", unit=1024)


def _left_to_process() -> float:
    """Below `ulimit -v`."""
    limit, used = _limit("RLIMIT_AS"), _told(Path("/proc/self/status"), "VmSize:", unit=1024)
    return limit - used if used < inf else inf


def _left_to_group(root: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")) -> float:
    """Below the limits of the container (cgroup 2) and of those around it, whose cache of files can be had."""
    try:
        own = root / mine.read_text().strip().rpartition("::/")[2]
    except OSError:
        return inf  # another system
    return min(_left_to(folder) for folder in (own, *own.parents) if folder.is_relative_to(root))


def _left_to(group: Path) -> float:
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cache = _told(group / "memory.stat", "inactive_file", unit=1)
        return inf if limit == "max" else int(limit) - int(used) + (cache if cache < inf else 0)
    except (OSError, ValueError):
        return inf  # there is no limit here, or no right to look


def _told(path: Path, name: str, *, unit: int) -> float:
    """The number after a name in a file of such lines; inf where there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return inf
    return next((float(unit) * int(line.split()[1]) for line in lines if line.startswith(name)), inf)


def _asked(said: str) -> str:
    """How much was asked for, as far as the error tells."""
    found = re.search(r"allocate (\d+) bytes", said)
    return f"another {int(found[1]) / 1e6:,.0f} MB" if found else "what is to be done"


def _allowed(limit: str, command: str, unit: int) -> str:
    """What this process is allowed, if it is not everything."""
    allowed = _limit(limit)
    if allowed == inf:
        return ""
    return f" (its limit, {command}, is {f'{allowed / 1e6:,.0f} MB' if unit else allowed})"


def _limit(name: str) -> float:
    """Of this process; inf where there is none."""
    allowed = resource.getrlimit(getattr(resource, name))[0] if resource else None
    return inf if allowed is None or allowed == resource.RLIM_INFINITY else allowed
