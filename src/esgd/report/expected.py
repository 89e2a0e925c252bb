"""How long a report will take to write, so that a run with a budget of time can keep as much of it back."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from time import perf_counter
from typing import TYPE_CHECKING

from esgd.report.figures import as_svg, sheet, styled
from esgd.report.templates import environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMED = 2  # figures, after what they need is imported
FIGURES = 10.0
"""A report takes so many times as long as the shorter of them. For a run with 18 generations it was about 11 times for
the first report of a process, and 7 to 9 for others, on a machine that others used, too."""


def expected_seconds(now: Callable[[], float] = perf_counter) -> float:
    """Seconds that `write_run` will need in this process: an empty figure is drawn and timed.

    What has to be imported for a report is imported now, so that it is not part of them.
    """
    environment()
    _empty().savefig(BytesIO(), format="png")
    took = list[float]()
    for _ in range(TIMED):
        begun = now()
        as_svg(_empty(), "empty")
        took.append(now() - begun)
    return FIGURES * min(took)


def _empty() -> Figure:
    with styled():
        figure, _ = sheet(panels=(2.0, 1.0))
        return figure
