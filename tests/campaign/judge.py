"""What must be true after an attack."""

from __future__ import annotations

import os
from pathlib import Path

from tests.campaign import reference
from tests.campaign.case import Ground
from tests.campaign.isolation import descendants
from tests.campaign.victim import Act, Ended, esgd, wait_until

SHARED_MEMORY = Path("/dev/shm")
LINGERING = 10.0
"""Seconds for which processes may outlive a command."""


def ends_the_same(
    ground: Ground,
    like: Path,
    words: tuple[str, ...],
    *,
    besides: tuple[str, ...] = (),
    prepare: Act = lambda: None,
    lingering: float = LINGERING,
) -> str | None:
    """Give the command again that was cut short: it succeeds, and the folder is that of an undisturbed run."""
    again = esgd(*words, cwd=ground.folder, prepare=prepare)
    if again.code != 0:
        return str(again)
    return unclean(again) or is_same(ground, like, besides=besides) or left_over(ground, seconds=lingering)


def is_same(ground: Ground, like: Path, *, besides: tuple[str, ...] = ()) -> str | None:
    """The folder is that of an undisturbed run, and `esgd verify` finds every run in it whole."""
    runs = sorted(manifest.parent for manifest in ground.run.rglob("manifest.json"))
    checked = esgd("verify", *runs, cwd=ground.folder)
    if checked.code != 0:
        return str(checked)
    return reference.difference(ground.run, like, besides=besides)


def unclean(ended: Ended) -> str | None:
    """A process that was not killed says what is wrong in our words: never a traceback, never a defect of ours."""
    if "Traceback (most recent call last)" in ended.said or ended.code == 1:
        return str(ended)
    return None


def refuses(ended: Ended, *names: str) -> str | None:
    """It ended with 3, a run folder that cannot be used, or 2, a wrong input, and named one of these."""
    if ended.code not in (2, 3) or not any(name in ended.said for name in names):
        return f"expected a refusal that names {' or '.join(names)}; {ended}"
    return unclean(ended)


def left_over(ground: Ground, *, seconds: float = LINGERING) -> str | None:
    """No process is left of those that the case began, and nothing in shared memory."""

    def gone() -> bool:
        _bury()
        return not list(descendants(os.getpid()))

    if not wait_until(gone, seconds=seconds):
        left = [" ".join(Path(f"/proc/{pid}/comm").read_text().split()) for pid in descendants(os.getpid())]
        return f"processes are left after {seconds:.0f} s: {left}"
    shared = sorted(path.name for path in SHARED_MEMORY.iterdir()) if ground.mounts else []
    return f"left in {SHARED_MEMORY}: {shared}" if shared else None


def _bury() -> None:
    """Take note of orphans that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
