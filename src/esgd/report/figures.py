"""Figures 1 and 2 of the paper, and the picture of one run. The one file that imports matplotlib, and only when it
draws. Objects, never pyplot: nothing is left behind in the reader's program, and no display is needed.

Colours are Okabe and Ito's, which colour-blind readers can tell apart: the paper's red, orange and green among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import StringIO
from itertools import cycle
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esgd.errors import MissingExtraError
from esgd.ranges import FoundRange
from esgd.report.arms import ESGD, LABELS, POPULATION, SINGLE, TOP, WITHOUT_EVOLUTION, Histories, History
from esgd.report.series import Curve, best, curve, elite_mean, last_of_top, offspring_share, refused_share
from esgd.run.files import replace_file

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RED, ORANGE, GREEN, BLUE, PURPLE, GREY = "#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7", "#595959"
WIDTH, HEIGHT = 4.8, 3.6  # inches: one column of a paper, two figures side by side on a desk, readable on a phone
LOG_RATIO = 20.0  # beyond it a linear axis would flatten the late generations
PRINT_DPI = 300
HIGHEST_LOSS = 1.5  # of a trial that is shown, relative to the loss before it

_STYLE = {
    "font.size": 10.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6e6e6",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.title_fontsize": 10.5,
    "legend.columnspacing": 1.4,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 3.5,
    "svg.fonttype": "none",  # text stays text: the page's own typeface, readable to a screen reader
    "svg.hashsalt": "esgd",  # the same figure is the same file
}


def figure_1(histories: Histories) -> Figure:
    """Fitness over generations (paper, figure 1), means over seeds: the single baseline, the top 15 of the population
    baseline and of ESGD as bands, and the best of the ablation as a thin line.

    Where arms cut the same epochs into different numbers of generations, the axis is the share of the epochs.
    """
    runs = {arm: list(histories.get(arm, {}).values()) for arm in LABELS}
    drawn = (POPULATION, ESGD, WITHOUT_EVOLUTION, SINGLE)
    lengths = {max(line["k"] for line in history) for arm in drawn for history in runs[arm] if history}
    stretch = len(lengths) > 1
    with styled():
        figure, (axes,) = sheet()
        for arm, colour in ((POPULATION, ORANGE), (ESGD, GREEN)):
            _band(axes, runs[arm], colour, LABELS[arm], stretch=stretch)
        ablation, single = (curve(runs[arm], best, stretch=stretch) for arm in (WITHOUT_EVOLUTION, SINGLE))
        draw_curve(axes, ablation, BLUE, LABELS[WITHOUT_EVOLUTION], "--", width=1.1)
        draw_curve(axes, single, RED, LABELS[SINGLE])
        _finish_fitness(axes)
        axes.set_xlabel("% of the SGD epochs" if stretch else "generation")
        return figure


def figure_2(histories: Histories) -> Figure:
    """Percentage of offspring among the elites over generations of ESGD (paper, figure 2): a light line for every
    seed, their mean in bold."""
    runs = list(histories.get(ESGD, {}).values())
    with styled():
        figure, (axes,) = sheet()
        if len(runs) > 1:
            for number, history in enumerate(runs):
                each = curve([history], offspring_share)
                draw_curve(axes, each, GREEN, "each seed" if number == 0 else "_", width=1.0, alpha=0.35)
        draw_curve(
            axes, curve(runs, offspring_share), GREEN, "mean over seeds" if len(runs) > 1 else "offspring", width=2.4
        )
        _finish_percentage(axes, "Offspring among the elites")
        axes.set_xlabel("generation")
        return figure


def figure_run(history: History) -> Figure:
    """One run: the fitness of the population above; below, the share of offspring among the elites and of SGD
    updates that were backed off."""
    with styled():
        figure, (above, below) = sheet(panels=(2.0, 1.0))
        _band(above, [history], GREEN, "population")
        draw_curve(above, curve([history], elite_mean), GREY, "mean of the elites", "--", width=1.2)
        _finish_fitness(above)
        draw_curve(below, curve([history], offspring_share), GREEN, "offspring among elites")
        draw_curve(below, curve([history], refused_share), RED, "updates backed off", "--", width=1.2)
        _finish_percentage(below, "Share")
        below.set_xlabel("generation")
        return figure


def figure_ranges(found: Sequence[FoundRange]) -> Figure:
    """The range test: the training loss after the longest trials against the learning rate, relative to the loss before
    them, and the range that was chosen, shaded."""
    with styled():
        figure, (axes,) = sheet()
        for each, colour in zip(found, cycle((GREEN, BLUE, PURPLE, ORANGE)), strict=False):
            steps = max((probe.steps for probe in each.probes), default=0)
            tried = sorted((p.rate, p.loss / each.start) for p in each.probes if p.steps == steps and isfinite(p.loss))
            label = each.name.replace("$", r"\$")
            if tried:
                axes.plot(*zip(*tried, strict=True), "-o", color=colour, label=label)
            axes.axvspan(each.low or each.top, each.top, color=colour, alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_ylim(0, HIGHEST_LOSS)
        axes.set_xlabel("learning rate")
        _title(axes, "Training loss after the trials, over that before")
        return figure


def as_svg(figure: Figure, name: str) -> str:
    """An <svg> element to stand inside a page; every id in it begins with `name`, so that figures do not clash."""
    text = StringIO()
    with styled():
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = text.getvalue()
    return re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", svg[svg.index("<svg") :])


def write_png(figure: Figure, path: Path) -> None:
    """The figure for print: a PNG of 300 dots per inch, without the date."""
    with styled():
        replace_file(path, partial(figure.savefig, format="png", dpi=PRINT_DPI, metadata={"Software": None}))


@contextmanager
def styled() -> Iterator[None]:
    """Our style on matplotlib's own defaults, whatever the reader's matplotlibrc says; put back afterwards."""
    try:
        import matplotlib.style
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report", "Drawing figures") from error
    with matplotlib.style.context(["default", _STYLE]):
        yield


def sheet(panels: Sequence[float] = (1.0,)) -> tuple[Figure, list[Axes]]:
    """A figure of panels, one above the other, that share the axis of generations."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(WIDTH, HEIGHT * (1.0 if len(panels) == 1 else 1.4)), layout="constrained")
    grid = figure.subplots(len(panels), sharex=True, squeeze=False, height_ratios=panels)
    for axes in grid.flat:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_axisbelow(True)
        axes.margins(x=0.03)
    return figure, list(grid.flat)


def draw_curve(
    axes: Axes, shown: Curve, colour: str, label: str, style: str = "-", *, width: float = 1.8, alpha: float = 1.0
) -> None:
    """A line with a dot for every generation, so that a lone one is seen too; nothing where nothing is known."""
    if shown.known:
        axes.plot(
            shown.generations, shown.values, style, marker="o", color=colour, label=label, linewidth=width, alpha=alpha
        )


def _band(axes: Axes, runs: Sequence[History], colour: str, label: str, *, stretch: bool = False) -> None:
    """From the best, drawn as a line, to the last of the top; a lone generation gets a bar instead of an area."""
    low, high = (curve(runs, value, stretch=stretch) for value in (best, last_of_top))
    if not low.known:
        return
    if len(low.known) > 1:
        axes.fill_between(low.generations, low.values, high.values, color=colour, alpha=0.28, linewidth=0, label=label)
    else:
        axes.vlines(low.generations, low.values, high.values, color=colour, alpha=0.28, linewidth=8, label=label)
    draw_curve(axes, low, colour, label)


def _finish_fitness(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    _title(axes, f"Fitness: the best, and a band of the top {TOP}")
    if not axes.lines:
        axes.text(0.5, 0.5, "no finite fitness", transform=axes.transAxes, ha="center", color=GREY)
        return
    low, high = axes.dataLim.intervaly
    if low > 0 and high / low > LOG_RATIO:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _finish_percentage(axes: Axes, title: str) -> None:
    from matplotlib.ticker import PercentFormatter

    _title(axes, title)
    axes.set_ylim(-4, 104)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))


def _title(axes: Axes, text: str) -> None:
    """What the axis shows and the key to its lines, above the panel, where nothing is hidden behind them."""
    keys: dict[str, tuple[Artist, ...]] = {}
    for artist, label in zip(*axes.get_legend_handles_labels(), strict=True):
        keys[label] = (artist, *keys.get(label, ()))  # a band and its line share one key
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 1.0), "alignment": "left", "borderpad": 0.2}
    axes.legend(list(keys.values()), list(keys), title=text, ncols=2, **place)
