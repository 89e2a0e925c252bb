"""Is the machine quiet? A busy core makes every two-thread number worthless, and the plain loop's most of all.

Threads of one product wait for one another: with one of two cores taken, they are not half as fast but ten times
slower. So the share of processor time that anybody uses is taken while all sides of a comparison wait, and is written
into the results. Linux only; elsewhere nothing is known.
"""

from __future__ import annotations

from pathlib import Path
from time import sleep

SECONDS, LIMIT = 0.5, 0.1
STAT = Path("/proc/stat")


def ticks() -> tuple[int, int]:
    """Processor time of all cores since the start of the machine: idle, and all."""
    spent = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:9]]
    return spent[3] + spent[4], sum(spent)


def busy() -> float | None:
    """The share of all cores that is in use right now, by others: who calls this sleeps."""
    if not STAT.is_file():
        return None
    idle, total = ticks()
    sleep(SECONDS)
    idle_after, total_after = ticks()
    return 1.0 - (idle_after - idle) / max(1, total_after - total)


class Quiet:
    """Looks around before every repeat, because others may come at any time, and remembers the worst."""

    def __init__(self) -> None:
        self.worst: float | None = None

    def look(self) -> None:
        share = busy()
        if share is not None:
            self.worst = max(share, self.worst or 0.0)
            if share > LIMIT:
                print(f"Others use {share:.0%} of this machine; what is measured now means little.", flush=True)
